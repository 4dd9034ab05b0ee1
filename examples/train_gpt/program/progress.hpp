// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "job.hpp"

namespace train_gpt {

/// Loss, tokens per second and time left: one moving line on a terminal, else about twenty plain lines.
class Progress {
  public:
    enum class Style : std::uint8_t { moving_line, plain_lines };

    Progress(const Options& options, Style style);
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    /// Ends a line that a failed run left open.
    ~Progress();

    void after_step(const StepReport& report);

    /// moving_line where standard output is a terminal.
    static Style style_of_standard_output();

  private:
    using Clock = std::chrono::steady_clock;

    std::size_t steps_;
    std::size_t tokens_per_step_;
    Style style_;
    Clock::time_point start_;
    Clock::time_point shown_;
    enum class Line : std::uint8_t { ended, open } line_ = Line::ended;
};

}  // namespace train_gpt
