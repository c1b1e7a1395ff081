//! Advice for the hint keys of `tensorferry_share`.

use super::Advice;
use tensorferry_share::hints;

pub(super) const ADVICE: &[Advice] = &[
    (hints::RELEASE_DESCRIPTORS, "release some shared tensors, or raise the limit: ulimit -n"),
    (
        hints::RAISE_PRODUCER_FD_LIMIT,
        "raise the producer's limit (ulimit -n) or release some of its tensors, and attach again",
    ),
    (
        hints::STOP_IDLE_CONSUMERS,
        "end the consumers that are stopped, or raise the producer's limit (ulimit -n), and attach again",
    ),
    (hints::SHARE_LESS, "free some memory, or share less at a time"),
    (hints::REQUEST_NEW_TICKET, "ask the producer for a new ticket"),
    (
        hints::KEEP_PUBLICATION,
        "keep the Ticket that publish() returned for as long as consumers may attach, or ask for a new one",
    ),
    (hints::PASS_TICKET_UNCHANGED, "pass a ticket exactly as the producer returned it"),
    (hints::RUN_AS_SAME_USER, "run both processes as the same user"),
    (hints::MATCH_VERSIONS, "use the same version of tensorferry in both processes"),
    (hints::CHECK_PRODUCER, "check whether the producer is stopped, or pass a longer timeout"),
    (hints::FIX_PRODUCER, "fix the cause in the producer, and attach again"),
    (hints::MAKE_SOCKET_DIR_WRITABLE, "make $XDG_RUNTIME_DIR or /tmp writable"),
    (hints::PUBLISH_READ_ONLY, "publish it with writable=False, or publish a copy with copy=True"),
    (hints::PUBLISH_COPY, "publish a copy with copy=True, or publish it as writable"),
    (
        hints::PUBLISH_FEWER_TENSORS,
        "check that every tensor fits into its memory, and publish fewer tensors with one ticket",
    ),
    (hints::PASS_LONG_VALUES_AS_TENSORS, "pass long strings and bytes as tensors"),
    (hints::CHECK_CONTAINER_CYCLES, "check that no container contains itself"),
    (hints::REPORT_BUG, "report this as a bug of tensorferry"),
];
