#include "base/stop_signal.h"

#include <signal.h>

#include <initializer_list>

namespace g2::base {
namespace {

// A signal handler may touch nothing but such a flag.
volatile sig_atomic_t stop_flag = 0;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

void handle(int number) {
  if (stop_flag != 0) {  // ended by the signal itself: 75 would promise a saved state
    signal(number, SIG_DFL);
    raise(number);
  }
  stop_flag = 1;
}

}  // namespace

void install_stop_handlers() {
  struct sigaction action {};
  action.sa_handler = handle;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaction(signal, &action, nullptr);
}

bool stop_requested() {
  return stop_flag != 0;
}

void set_stop_requested(bool requested) {
  stop_flag = requested ? 1 : 0;
}

}  // namespace g2::base
