/* Turns callgrind's counting on and off from inside the program that it watches. */
#include <valgrind/callgrind.h>

void counting_on(void) { CALLGRIND_START_INSTRUMENTATION; }

void counting_off(void) { CALLGRIND_STOP_INSTRUMENTATION; }

/* Writes what was counted into the next file, under this name, and begins again at zero. */
void write_counts(const char *name) { CALLGRIND_DUMP_STATS_AT(name); }
