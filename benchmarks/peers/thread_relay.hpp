// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <barrier>
#include <cstddef>
#include <string>

#include "console.hpp"

namespace benchmarks::peers {

/// Gives every rank of a process the commands that the process receives. Who waits, sleeps: the processors belong to
/// the peer meanwhile.
class ThreadRelay {
  public:
    explicit ThreadRelay(std::size_t ranks) : together_(static_cast<std::ptrdiff_t>(ranks)) {}

    /// Collective over the ranks.
    Command next(std::size_t rank) {
        if (rank == 0) { line_ = read_line(); }
        together_.arrive_and_wait();
        Command mine = words_of(line_);
        together_.arrive_and_wait();
        return mine;
    }

  private:
    std::barrier<> together_;
    std::string line_;
};

}  // namespace benchmarks::peers
