// SIGTERM, SIGINT and SIGUSR1 ask a run to save and stop; a second one ends the process at once.
#pragma once

namespace g2::base {

// Installs the handlers; call once, before the work starts. Children inherit nothing by exec.
void install_stop_handlers();

// True once a stop was asked for. Polled between micro-batches, in evaluation and while data is
// read.
bool stop_requested();

// As if a signal had come, or, with false, as if none had: for tests.
void set_stop_requested(bool requested);

}  // namespace g2::base
