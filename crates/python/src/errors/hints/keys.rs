//! Hint keys of this crate, for errors that the command line words by its own options.

tensorferry_core::hint_keys! {
    /// The framework is not known, and no name is close to it.
    NAME_FRAMEWORK = "python.name_framework";
    /// The value is not a dtype.
    NAME_DTYPE = "python.name_dtype";
    /// The value is not a dtype; the value of the hint is the dtype that is meant.
    SUGGEST_DTYPE = "python.suggest_dtype";
    /// The value is not a device.
    NAME_DEVICE = "python.name_device";
    /// The extension of a path does not tell the format.
    NAME_FILE_FORMAT = "python.name_file_format";
}
