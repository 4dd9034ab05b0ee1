// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "job.hpp"

namespace train_gpt {

/// Loss, tokens per second and time left: one moving line on a terminal, never wider than it, else about twenty plain
/// lines; and a line after every `quiet` at the latest, also within a step. Used by one thread.
class Progress {
  public:
    /// `first_step`: how many steps are done before the first report.
    Progress(const Options& options, std::FILE* out, std::chrono::milliseconds quiet = std::chrono::seconds(10),
             std::size_t first_step = 0);
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress();

    void after_step(const StepReport& report);

    /// The last line is ended, and no more will come. For any thread.
    void stop();

  private:
    using Clock = std::chrono::steady_clock;
    enum class Style : std::uint8_t { moving_line, plain_lines };

    static Style style_of(const Options& options, std::FILE* out);
    void show(bool last);  // the newest report
    void print(const std::string& text, bool last);
    void break_the_silence();  // what the thread does
    std::string under_way() const;

    const std::size_t first_step_;
    const std::size_t steps_;
    const std::size_t tokens_per_step_;
    std::FILE* const out_;
    const Style style_;
    const std::chrono::milliseconds quiet_;

    std::mutex mutex_;  // guards everything below
    std::condition_variable stops_;
    std::optional<StepReport> newest_;
    bool is_shown_ = true;       // the newest report
    Clock::time_point stepped_;  // when it came
    Clock::time_point shown_;
    bool line_is_open_ = false;
    bool stopped_ = false;
    std::thread silence_;
};

/// The line without its bar, in at most `width` characters: what is less needed is left out first.
std::string progress_text(const StepReport& report, std::size_t steps, double seconds_left, std::size_t width);

}  // namespace train_gpt
