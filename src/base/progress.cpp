#include "base/progress.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "base/text.h"

namespace g2::base {
namespace {

constexpr int kBarCells = 30;
constexpr std::chrono::milliseconds kRedrawEvery{100};

std::atomic<bool>& line_is_drawn() {
  static std::atomic<bool> drawn{false};
  return drawn;
}

}  // namespace

void clear_progress_line() {
  if (line_is_drawn().exchange(false)) std::fputs("\r\033[K", stderr);
}

ProgressBar::ProgressBar(std::string_view title, std::string_view unit, double total)
    : title_(title),
      unit_(unit),
      total_(total),
      start_(std::chrono::steady_clock::now()),
      on_terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  clear_progress_line();
}

void ProgressBar::update(double done, std::string_view note) {
  if (first_ < 0) first_ = done;
  if (!on_terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_draw_ < kRedrawEvery && done < total_) return;
  last_draw_ = now;
  draw(done, note);
}

void ProgressBar::draw(double done, std::string_view note) {
  const double seconds = std::chrono::duration<double>(last_draw_ - start_).count();
  const double rate = seconds > 0 ? (done - first_) / seconds : 0;
  std::string line = "\r\033[K" + title_ + " ";
  if (total_ > 0) {
    const double share = std::clamp(done / total_, 0.0, 1.0);
    const int full = static_cast<int>(share * kBarCells);
    line += "[" + std::string(full, '#') + std::string(kBarCells - full, '.') + "] ";
    line += cat(static_cast<int>(share * 100), "% ");
    if (rate > 0) line += duration_text((total_ - done) / rate) + " left ";
  }
  line += cat(static_cast<std::int64_t>(done), " ", unit_);
  if (!note.empty()) line += cat("  ", note);
  std::fputs(line.c_str(), stderr);
  line_is_drawn() = true;
}

}  // namespace g2::base
