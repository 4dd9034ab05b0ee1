// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <barrier>
#include <cstddef>
#include <cstdint>

#include "../common/workload.hpp"

namespace benchmarks::peers {

/// The standard library's barrier, which all ranks share.
class StdBarrier final : public Workload {
  public:
    explicit StdBarrier(std::barrier<>& shared) : shared_(shared) {}
    void prepare() override {}
    void call(std::size_t times) override {
        for (std::size_t i = 0; i < times; ++i) { shared_.arrive_and_wait(); }
    }
    std::uint64_t count_wrong() override { return 0; }

  private:
    std::barrier<>& shared_;
};

}  // namespace benchmarks::peers
