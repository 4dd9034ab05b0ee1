// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <thread>

/// Lets rank 0 do something while the other ranks, threads of this process, wait before and behind it.
class Alone {
  public:
    explicit Alone(std::size_t ranks) noexcept : ranks_(ranks) {}

    /// Every rank calls this for each round, counted from 0.
    template <class F>
    void operator()(std::size_t rank, std::size_t round, const F& f) {
        meet(2 * round + 1);
        if (rank == 0) { f(); }
        meet(2 * round + 2);
    }

  private:
    void meet(std::size_t times) {
        ++arrived_;
        while (arrived_ < times * ranks_) { std::this_thread::yield(); }
    }

    std::size_t ranks_;
    std::atomic<std::size_t> arrived_ = 0;
};
