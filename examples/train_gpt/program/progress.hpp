// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "../../common/text_format.hpp"
#include "job.hpp"

namespace train_gpt {

/// Prints loss, tokens per second and time left behind the first and the last step and some twenty between them, or
/// behind each whose loss is read where they are rare, and behind one that ends ten seconds without a line.
class Progress {
  public:
    /// `first_step`: how many steps are done before the first report.
    Progress(const Options& options, std::FILE* out, std::size_t first_step = 0)
        : first_step_(first_step),
          steps_(options.steps),
          shown_every_(options.every > 1 ? 1 : std::max<std::size_t>(1, steps_ / 20)),
          tokens_per_step_(options.tokens_per_step()),
          out_(out) {}

    void after_step(const StepReport& report) {
        const auto now = std::chrono::steady_clock::now();
        const std::size_t done = report.step + 1;
        const bool ends = report.step == first_step_ || done == steps_;
        if (!ends && now - shown_ < std::chrono::seconds(10) && report.step % shown_every_ != 0) { return; }
        shown_ = now;
        const auto left = static_cast<double>((steps_ - done) * tokens_per_step_);
        std::string text = program::formatted("step %zu/%zu  loss %.4f", done, steps_, report.loss);
        if (report.grad_norm) { text += program::formatted("  norm %.3f", *report.grad_norm); }
        text += "  " + program::grouped(static_cast<std::uint64_t>(report.tokens_per_second)) + " tokens/s  " +
                program::duration_text(left / std::max(1e-9, report.tokens_per_second)) + " left\n";
        std::fputs(text.c_str(), out_);
        std::fflush(out_);
    }

  private:
    std::size_t first_step_;
    std::size_t steps_;
    std::size_t shown_every_;  // steps
    std::size_t tokens_per_step_;
    std::FILE* out_;
    std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

}  // namespace train_gpt
