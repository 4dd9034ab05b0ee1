// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "job.hpp"
#include "text_format.hpp"

namespace train_gpt {

/// Prints loss, tokens per second and time left behind the first and the last step, some twenty between them, and
/// each that ends `quiet` after the line before.
class Progress {
  public:
    /// `first_step`: how many steps are done before the first report.
    Progress(const Options& options, std::FILE* out, std::chrono::milliseconds quiet = std::chrono::seconds(10),
             std::size_t first_step = 0)
        : first_step_(first_step),
          steps_(options.steps),
          tokens_per_step_(options.tokens_per_step()),
          out_(out),
          quiet_(quiet) {}

    void after_step(const StepReport& report) {
        const std::size_t done = report.step + 1;
        const bool ends = report.step == first_step_ || done == steps_;
        const auto now = std::chrono::steady_clock::now();
        if (!ends && now - shown_ < quiet_ && report.step % std::max<std::size_t>(1, steps_ / 20) != 0) { return; }
        shown_ = now;
        const auto left = static_cast<double>((steps_ - done) * tokens_per_step_);
        std::string text = "step " + std::to_string(done) + "/" + std::to_string(steps_) +
                           program::formatted("  loss %.4f", report.loss);
        if (report.grad_norm) { text += program::formatted("  norm %.3f", *report.grad_norm); }
        text += "  " + grouped(static_cast<std::uint64_t>(report.tokens_per_second)) + " tokens/s  " +
                duration_text(left / std::max(1e-9, report.tokens_per_second)) + " left\n";
        std::fputs(text.c_str(), out_);
        std::fflush(out_);
    }

  private:
    std::size_t first_step_;
    std::size_t steps_;
    std::size_t tokens_per_step_;
    std::FILE* out_;
    std::chrono::milliseconds quiet_;
    std::chrono::steady_clock::time_point shown_;
};

}  // namespace train_gpt
