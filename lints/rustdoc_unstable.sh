#!/bin/sh
# rustdoc with unstable options, for lints/public_api.py. cargo passes the toolchain in the environment.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
