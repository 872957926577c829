// A progress bar with rate and time left.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace g2::base {

enum class ProgressMode { kAuto, kOn, kOff };

// Whether bars made from now on are drawn; kAuto, the default: when stderr is a terminal.
void set_progress_mode(ProgressMode mode);

class ProgressBar {
 public:
  // `unit` names what is counted ("step", "MiB"); total 0 means unknown: a counter without a bar.
  // Requires that at most one bar is alive at a time.
  ProgressBar(std::string_view title, std::string_view unit, double total);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Redraws at most ten times a second. `note` is shown behind the bar ("loss 2.31").
  void update(double done, std::string_view note = {});

 private:
  void draw(double done, std::string_view note);

  std::string title_, unit_;
  double total_;
  double first_ = -1;  // value of the first update: a resumed run does not start at zero
  std::chrono::steady_clock::time_point start_, last_draw_;
  bool is_drawn_;
};

// Wipes a drawn bar so that a log line can take its place; nothing when no bar is drawn.
void clear_progress_line();

}  // namespace g2::base
