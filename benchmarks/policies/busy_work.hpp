// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

namespace benchmarks::policies {

/// Stands for a model's computation: a chain of dependent multiply-adds, so many that they take a given time on an
/// otherwise idle processor. It touches no memory, and takes longer when the processor is shared.
class BusyWork {
  public:
    /// `per_second`: links of the chain.
    explicit BusyWork(double per_second) noexcept : per_second_(per_second) {}

    /// Times the chain in this thread; the best of several, for about 40 ms.
    static BusyWork calibrate();

    double per_second() const noexcept { return per_second_; }
    std::uint64_t links_for(double seconds) const noexcept {
        return static_cast<std::uint64_t>(std::llround(seconds * per_second_));
    }
    /// Does the work; nothing of it is left out.
    static void run(std::uint64_t links) noexcept;

  private:
    double per_second_;
};

}  // namespace benchmarks::policies
