//! The hint keys of this crate, with the advice that is the same in every front end.

tensorferry_core::hint_keys! {
    /// This process has no file descriptor left.
    RELEASE_DESCRIPTORS = "share.release_descriptors"
        => "release some shared tensors, or raise the limit: ulimit -n";
    /// The producer has no file descriptor left.
    RAISE_PRODUCER_FD_LIMIT = "share.raise_producer_fd_limit"
        => "raise the producer's limit (ulimit -n) or release some of its tensors, and attach again";
    /// Consumers that do not read use up the descriptors that may be in flight.
    STOP_IDLE_CONSUMERS = "share.stop_idle_consumers"
        => "end the consumers that are stopped, or raise the producer's limit (ulimit -n), and attach again";
    /// Shared memory ran out.
    SHARE_LESS = "share.share_less" => "free some memory, or share less at a time";
    /// Shared memory would exceed the limit on file sizes, which applies to it too.
    RAISE_FILE_SIZE_LIMIT = "share.raise_file_size_limit" => "raise the limit on file sizes: ulimit -f";
    /// The ticket is stale, used or expired.
    REQUEST_NEW_TICKET = "share.request_new_ticket" => "ask the producer for a new ticket";
    /// The publication of the ticket is gone.
    KEEP_PUBLICATION = "share.keep_publication";
    /// The text or the bytes of a ticket were modified.
    PASS_TICKET_UNCHANGED = "share.pass_ticket_unchanged"
        => "pass a ticket exactly as the producer returned it";
    /// Producer and consumer run as different users.
    RUN_AS_SAME_USER = "share.run_as_same_user" => "run both processes as the same user";
    /// The peer breaks the protocol.
    MATCH_VERSIONS = "share.match_versions" => "use the same version of tensorferry in both processes";
    /// The producer does not reply in time.
    CHECK_PRODUCER = "share.check_producer"
        => "check whether the producer is stopped, or pass a longer timeout";
    /// The producer failed; the fact says why.
    FIX_PRODUCER = "share.fix_producer" => "fix the cause in the producer, and attach again";
    /// No directory for the socket can be created.
    MAKE_SOCKET_DIR_WRITABLE = "share.make_socket_dir_writable" => "make $XDG_RUNTIME_DIR or /tmp writable";
    /// Read-only memory was to be published as writable.
    PUBLISH_READ_ONLY = "share.publish_read_only";
    /// Memory that cannot be protected was to be published as read-only.
    PUBLISH_COPY = "share.publish_copy";
    /// The tensors of one ticket exceed a limit, or one of them exceeds its memory.
    PUBLISH_FEWER_TENSORS = "share.publish_fewer_tensors"
        => "check that every tensor fits into its memory, and publish fewer tensors with one ticket";
    /// The tree around the tensors is too large.
    PASS_LONG_VALUES_AS_TENSORS = "share.pass_long_values_as_tensors"
        => "pass long strings and bytes as tensors";
    /// The tree around the tensors is too deep.
    CHECK_CONTAINER_CYCLES = "share.check_container_cycles" => "check that no container contains itself";
    /// An internal invariant does not hold.
    REPORT_BUG = "share.report_bug" => "report this as a bug of tensorferry";
}
