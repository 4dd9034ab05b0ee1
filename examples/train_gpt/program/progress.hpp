// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "job.hpp"

namespace train_gpt {

/// Loss, tokens per second and time left, in about twenty lines, and a line after every `quiet` at the latest, also
/// within a step. Used by one thread.
class Progress {
  public:
    /// `first_step`: how many steps are done before the first report.
    Progress(const Options& options, std::FILE* out, std::chrono::milliseconds quiet = std::chrono::seconds(10),
             std::size_t first_step = 0);
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress();

    void after_step(const StepReport& report);

    /// No more lines will come. For any thread.
    void stop();

  private:
    using Clock = std::chrono::steady_clock;

    void show();  // the newest report
    void print(const std::string& text);
    void break_the_silence();  // what the thread does
    std::string under_way() const;

    const std::size_t first_step_;
    const std::size_t steps_;
    const std::size_t tokens_per_step_;
    std::FILE* const out_;
    const std::chrono::milliseconds quiet_;

    std::mutex mutex_;  // guards everything below
    std::condition_variable stops_;
    std::optional<StepReport> newest_;
    bool is_shown_ = true;       // the newest report
    Clock::time_point stepped_;  // when it came
    Clock::time_point shown_;
    bool stopped_ = false;
    std::thread silence_;
};

}  // namespace train_gpt
