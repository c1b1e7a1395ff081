"""The record of `make sanitizers` counts what the tools print."""

import record_sanitizers

PASSED = "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out\n"
FAILED = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n"


def test_counts_of_all_programs_are_added():
    assert record_sanitizers.summary(f"one\n{PASSED}two\n{PASSED}", 0) == {
        "result": "passed",
        "passed": 24,
        "failed": 0,
        "ignored": 6,
    }


def test_a_failed_program_fails_the_tool():
    found = record_sanitizers.summary(PASSED + FAILED, 0)
    assert (found["result"], found["passed"], found["failed"]) == ("failed", 13, 2)


def test_an_exit_code_fails_the_tool():
    # ThreadSanitizer reports a race by the exit code alone.
    assert record_sanitizers.summary(PASSED, 66)["result"] == "failed"


def test_a_tool_that_runs_no_test_has_failed():
    assert record_sanitizers.summary("error: could not compile\n", 0)["result"] == "failed"
