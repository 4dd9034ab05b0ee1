// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include <shardkit/plan/plan.hpp>

namespace benchmarks::policies {

/// What one rank alone makes of the check run: the parameters of every group before each step and after the last.
template <class T>
using Reference = std::vector<std::vector<std::vector<T>>>;

/// One policy's model on one rank, whatever policy and engine; its calls are collective over the world.
template <class T>
class Trainer {
  public:
    Trainer() = default;
    Trainer(const Trainer&) = delete;
    Trainer& operator=(const Trainer&) = delete;
    virtual ~Trainer() = default;

    static constexpr std::size_t check_steps = 3;

    /// Trains from the beginning with known gradients. The largest difference of any element that a window shows, or
    /// that is there at the end, from the reference, over the larger of 1 and the element.
    virtual double largest_difference(const Reference<T>& reference) = 0;
    /// The same run as a reference.
    virtual Reference<T> reference() = 0;

    /// One step with busy work.
    virtual void step() = 0;
    /// The same without its collectives.
    virtual void compute() = 0;
    /// A step whose collectives are remembered.
    virtual void record() = 0;
    /// These collectives alone, back to back.
    virtual void communicate() = 0;

    virtual std::size_t peak_bytes() const = 0;
    virtual shardkit::Plan plan() = 0;
};

}  // namespace benchmarks::policies
