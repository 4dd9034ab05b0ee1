// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "../../common/text_format.hpp"
#include "job.hpp"

namespace train_gpt {

/// Prints loss, tokens per second and time left behind the first and the last step and some twenty between them, or
/// behind each whose loss is read where they are rare, and a line whenever `quiet` has passed without one, also
/// within a step.
class Progress {
  public:
    /// `first_step`: how many steps are done before the first report.
    Progress(const Options& options, std::FILE* out, std::chrono::milliseconds quiet = std::chrono::seconds(10),
             std::size_t first_step = 0)
        : first_step_(first_step),
          steps_(options.steps),
          shown_every_(options.every > 1 ? 1 : std::max<std::size_t>(1, steps_ / 20)),
          tokens_per_step_(options.tokens_per_step()),
          out_(out),
          quiet_(quiet),
          done_(first_step) {}

    void after_step(const StepReport& report) {
        const std::lock_guard lock(mutex_);
        done_ = report.step + 1;
        stepped_ = Clock::now();
        const bool ends = report.step == first_step_ || done_ == steps_;
        if (!ends && stepped_ - shown_ < quiet_ && report.step % shown_every_ != 0) { return; }
        const auto left = static_cast<double>((steps_ - done_) * tokens_per_step_);
        std::string text = program::formatted("  loss %.4f", report.loss);
        if (report.grad_norm) { text += program::formatted("  norm %.3f", *report.grad_norm); }
        print(done_, text + "  " + program::grouped(static_cast<std::uint64_t>(report.tokens_per_second)) +
                         " tokens/s  " + program::duration_text(left / std::max(1e-9, report.tokens_per_second)) +
                         " left");
    }

  private:
    using Clock = std::chrono::steady_clock;

    void print(std::size_t step, const std::string& text) {
        shown_ = Clock::now();
        std::fprintf(out_, "step %zu/%zu%s\n", step, steps_, text.c_str());
        std::fflush(out_);
    }
    void break_the_silence(const std::stop_token& stops) {
        std::unique_lock lock(mutex_);
        while (!stops.stop_requested()) {
            const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(shown_ + quiet_ - Clock::now());
            if (left.count() > 0) {
                // The system clock, because thread sanitizers know the wait on it.
                waits_.wait_until(lock, stops, std::chrono::system_clock::now() + left, [] { return false; });
                continue;
            }
            const std::chrono::duration<double> took = Clock::now() - stepped_;
            print(std::min(done_ + 1, steps_), " under way, " + program::duration_text(took.count()));
        }
    }

    const std::size_t first_step_;
    const std::size_t steps_;
    const std::size_t shown_every_;  // steps
    const std::size_t tokens_per_step_;
    std::FILE* const out_;
    const std::chrono::milliseconds quiet_;
    std::mutex mutex_;  // guards what comes next
    std::condition_variable_any waits_;
    std::size_t done_;
    Clock::time_point stepped_ = Clock::now();
    Clock::time_point shown_ = stepped_;
    std::jthread silence_{[this](const std::stop_token& stops) { break_the_silence(stops); }};  // ends first
};

}  // namespace train_gpt
