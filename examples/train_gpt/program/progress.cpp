// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "text_format.hpp"

namespace train_gpt {

Progress::Progress(const Options& options, Style style)
    : steps_(options.steps),
      tokens_per_step_(options.tokens_per_step()),
      style_(style),
      start_(Clock::now()),
      shown_(start_ - std::chrono::hours(1)) {}

Progress::~Progress() {
    if (line_ == Line::open) { std::printf("\n"); }
}

void Progress::after_step(const StepReport& report) {
    const auto now = Clock::now();
    const std::size_t done = report.step + 1;
    const bool last = done == steps_;
    if (style_ == Style::moving_line) {
        if (!last && now - shown_ < std::chrono::milliseconds(100)) { return; }
    } else if (!last && report.step % std::max<std::size_t>(1, steps_ / 20) != 0) {
        return;
    }
    shown_ = now;
    const double seconds = std::max(1e-9, std::chrono::duration<double>(now - start_).count());
    const double rate = static_cast<double>(done * tokens_per_step_) / seconds;
    const double left = seconds / static_cast<double>(done) * static_cast<double>(steps_ - done);
    const std::string state = program::formatted(
        "step %zu/%zu  loss %.4f  norm %.3f  %s tokens/s  %s left", done, steps_, report.loss, report.grad_norm,
        grouped(static_cast<std::uint64_t>(rate)).c_str(), duration_text(left).c_str());
    if (style_ == Style::moving_line) {
        constexpr std::size_t cells = 24;
        const std::size_t full = cells * done / steps_;
        // Back to the line's start, and clear what a longer line left.
        std::printf("\r[%s%s] %s\x1b[K%s", std::string(full, '#').c_str(), std::string(cells - full, '.').c_str(),
                    state.c_str(), last ? "\n" : "");
        line_ = last ? Line::ended : Line::open;
    } else {
        std::printf("%s\n", state.c_str());
    }
    std::fflush(stdout);
}

Progress::Style Progress::style_of_standard_output() {
    return isatty(STDOUT_FILENO) == 1 ? Style::moving_line : Style::plain_lines;
}

}  // namespace train_gpt
