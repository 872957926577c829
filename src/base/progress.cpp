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

std::atomic<ProgressMode>& mode() {
  static std::atomic<ProgressMode> chosen{ProgressMode::kAuto};
  return chosen;
}

bool draws() {
  return mode() == ProgressMode::kOn ||
         (mode() == ProgressMode::kAuto && isatty(STDERR_FILENO) == 1);
}

}  // namespace

void set_progress_mode(ProgressMode chosen) {
  mode() = chosen;
}

void clear_progress_line() {
  if (line_is_drawn().exchange(false)) std::fputs("\r\033[K", stderr);
}

ProgressBar::ProgressBar(std::string_view title, std::string_view unit, double total)
    : title_(title),
      unit_(unit),
      total_(total),
      start_(std::chrono::steady_clock::now()),
      is_drawn_(draws()) {}

ProgressBar::~ProgressBar() {
  clear_progress_line();
}

void ProgressBar::update(double done, std::string_view note) {
  if (first_ < 0) first_ = done;
  if (!is_drawn_) return;
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
