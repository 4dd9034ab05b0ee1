// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <algorithm>
#include <system_error>

#include "text_format.hpp"

namespace train_gpt {

Progress::Progress(const Options& options, std::FILE* out, std::chrono::milliseconds quiet, std::size_t first_step)
    : first_step_(first_step),
      steps_(options.steps),
      tokens_per_step_(options.tokens_per_step()),
      out_(out),
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

void Progress::after_step(const StepReport& report) {
    const std::lock_guard lock(mutex_);
    newest_ = report;
    is_shown_ = false;
    stepped_ = Clock::now();
    const bool ends = report.step == first_step_ || report.step + 1 == steps_;
    if (ends || stepped_ - shown_ >= quiet_ || report.step % std::max<std::size_t>(1, steps_ / 20) == 0) { show(); }
}

void Progress::stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    stops_.notify_one();
}

void Progress::show() {
    const StepReport& report = *newest_;
    const std::size_t left = (steps_ - report.step - 1) * tokens_per_step_;
    std::string text = "step " + std::to_string(report.step + 1) + "/" + std::to_string(steps_) +
                       program::formatted("  loss %.4f", report.loss);
    if (report.grad_norm) { text += program::formatted("  norm %.3f", *report.grad_norm); }
    is_shown_ = true;
    print(text + "  " + grouped(static_cast<std::uint64_t>(report.tokens_per_second)) + " tokens/s  " +
          duration_text(static_cast<double>(left) / std::max(1e-9, report.tokens_per_second)) + " left");
}

void Progress::print(const std::string& text) {
    if (stopped_) { return; }
    shown_ = Clock::now();
    std::fprintf(out_, "%s\n", text.c_str());
    std::fflush(out_);
}

std::string Progress::under_way() const {
    const std::size_t done = newest_ ? newest_->step + 1 : first_step_;
    const double seconds = std::chrono::duration<double>(Clock::now() - stepped_).count();
    return (done == steps_ ? "after the last step"
                           : "step " + std::to_string(done + 1) + "/" + std::to_string(steps_) + " under way") +
           ", " + duration_text(seconds);
}

void Progress::break_the_silence() {
    std::unique_lock lock(mutex_);
    while (!stopped_) {
        // The system clock, because thread sanitizers know the wait on it.
        const auto left = quiet_ - std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - shown_);
        if (left.count() > 0) {
            stops_.wait_until(lock, std::chrono::system_clock::now() + left);
        } else if (is_shown_) {
            print(under_way());
        } else {
            show();
        }
    }
}

}  // namespace train_gpt
