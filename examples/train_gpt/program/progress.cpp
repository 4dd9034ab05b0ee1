// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <system_error>

#include "../../common/started_by_mpirun.hpp"
#include "text_format.hpp"

namespace train_gpt {

namespace {

/// Characters of a line on the terminal behind `out`; as many as there are where it is none.
std::size_t line_width(std::FILE* out) {
    if (isatty(fileno(out)) != 1) { return std::numeric_limits<std::size_t>::max(); }
    winsize size{};
    const bool known = ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return (known ? size.ws_col : 80U) - 1U;  // a full line would begin the next one
}

}  // namespace

std::string progress_text(const StepReport& report, std::size_t steps, double seconds_left, std::size_t width) {
    // As they are printed, and how soon each is left out.
    struct Field {
        std::string text;
        int left_out;
    };
    std::array<Field, 5> fields{{
        {"step " + std::to_string(report.step + 1) + "/" + std::to_string(steps), 5},
        {program::formatted("loss %.4f", report.loss), 3},
        {report.grad_norm ? program::formatted("norm %.3f", *report.grad_norm) : std::string(), 1},
        {grouped(static_cast<std::uint64_t>(report.tokens_per_second)) + " tokens/s", 2},
        {duration_text(seconds_left) + " left", 4},
    }};
    for (int kept_from = 0;; ++kept_from) {
        std::string text;
        for (const Field& field : fields) {
            if (field.left_out > kept_from && !field.text.empty()) {
                text += (text.empty() ? "" : "  ") + field.text;
            }
        }
        if (text.size() <= width) { return text; }
        if (kept_from == 4) { return text.substr(0, width); }
    }
}

Progress::Progress(const Options& options, std::FILE* out, std::chrono::milliseconds quiet, std::size_t first_step)
    : first_step_(first_step),
      steps_(options.steps),
      tokens_per_step_(options.tokens_per_step()),
      out_(out),
      style_(style_of(options, out)),
      quiet_(quiet),
      stepped_(Clock::now()),
      shown_(stepped_) {
    try {
        silence_ = std::thread([this] { break_the_silence(); });
    } catch (const std::system_error&) {  // no thread to be had: steps alone are reported
    }
}

Progress::~Progress() {
    stop();
    if (silence_.joinable()) { silence_.join(); }
}

Progress::Style Progress::style_of(const Options& options, std::FILE* out) {
    const char* const terminal = std::getenv("TERM");
    const std::string_view name = terminal == nullptr ? "" : terminal;
    const bool moves = isatty(fileno(out)) == 1 && !name.empty() && name != "dumb";
    // Behind mpirun what looks like a terminal may end in a file.
    const bool passed_on = options.engine == EngineKind::mpi || program::started_by_mpirun();
    return moves && !passed_on ? Style::moving_line : Style::plain_lines;
}

void Progress::after_step(const StepReport& report) {
    const std::lock_guard lock(mutex_);
    newest_ = report;
    is_shown_ = false;
    stepped_ = Clock::now();
    const bool last = report.step + 1 == steps_;
    const auto silent = stepped_ - shown_;
    const bool first = report.step == first_step_;
    const bool due = style_ == Style::moving_line
                         ? silent >= std::chrono::milliseconds(100)
                         : silent >= quiet_ || report.step % std::max<std::size_t>(1, steps_ / 20) == 0;
    if (first || due || last) { show(last); }
}

void Progress::stop() {
    const std::lock_guard lock(mutex_);
    if (line_is_open_) { std::fputc('\n', out_); }
    std::fflush(out_);
    line_is_open_ = false;
    stopped_ = true;
    stops_.notify_one();
}

void Progress::show(bool last) {
    const std::size_t done = newest_->step + 1;
    const double left =
        static_cast<double>((steps_ - done) * tokens_per_step_) / std::max(1e-9, newest_->tokens_per_second);
    const std::size_t width = line_width(out_);
    std::string text = progress_text(*newest_, steps_, left, width);
    constexpr std::size_t frame = 3;  // "[", "] "
    const std::size_t room = width - text.size();
    if (style_ == Style::moving_line && room >= frame + 6) {
        const std::size_t cells = std::min<std::size_t>(24, room - frame);
        const std::size_t full = cells * done / steps_;
        text = "[" + std::string(full, '#') + std::string(cells - full, '.') + "] " + text;
    }
    is_shown_ = true;
    print(text, last);
}

void Progress::print(const std::string& text, bool last) {
    if (stopped_) { return; }
    shown_ = Clock::now();
    if (style_ == Style::moving_line) {
        // Back to the line's start, and clear what a longer line left.
        std::fprintf(out_, "\r%s\x1b[K%s", text.c_str(), last ? "\n" : "");
        line_is_open_ = !last;
    } else {
        std::fprintf(out_, "%s\n", text.c_str());
    }
    std::fflush(out_);
}

std::string Progress::under_way() const {
    const std::size_t done = newest_ ? newest_->step + 1 : first_step_;
    const double seconds = std::chrono::duration<double>(Clock::now() - stepped_).count();
    std::string text = done == steps_
                           ? "after the last step"
                           : "step " + std::to_string(done + 1) + "/" + std::to_string(steps_) + " under way";
    text += ", " + duration_text(seconds);
    return text.substr(0, line_width(out_));
}

void Progress::break_the_silence() {
    std::unique_lock lock(mutex_);
    while (!stopped_) {
        // The system clock, because thread sanitizers know the wait on it.
        const auto left = quiet_ - std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - shown_);
        if (left.count() > 0) {
            stops_.wait_until(lock, std::chrono::system_clock::now() + left);
        } else if (is_shown_) {
            print(under_way(), false);
        } else {
            show(false);
        }
    }
}

}  // namespace train_gpt
