#!/bin/sh
# rustdoc with unstable options: for lints/public_api.py, and for doctests, because a stable rustdoc does not compare the error codes
# of examples that must not compile. cargo passes the toolchain in the environment.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
