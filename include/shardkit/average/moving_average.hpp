// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/owned.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::detail SHARDKIT_FACE {
class AverageUpdates;
}

namespace shardkit SHARDKIT_FACE {

/// A moving average of a model's weights (EMA), in a second set of groups: a model like any other, which windows show
/// and `save`, `save_model` and `load` know.
///     std::vector<Layer> averages = make_layers(rank, "average.");   // frozen: without gradients
///     Model averaged{averages};
///     MovingAverage average{averaged, model};                        // begins as a copy, or as it was loaded
///     optimizer.step(...);
///     average.update(0.999);
/// Group i of the one is the average of group i of the other. Both models' groups outlive it.
/// Memory:  a number for each group. That of the averages is their groups'
/// Cost:    of an update: local work, 12 bytes moved per fp32 element that the rank updates; no communication
class MovingAverage {
  public:
    /// Copies the model's weights, where no load has read the average's: make it once they have their values, before
    /// a load of both or behind it.
    /// @throws std::invalid_argument, with both groups, where a rank does not update the same elements of the two, or
    ///         one in fp32 and the other in fp64; where the average is not frozen, is in 16 bits, or a load has read
    ///         some of a group's weights only; UsageError as update
    MovingAverage(const Model& average, const Model& of, SourceLocation where = SourceLocation::current());
    MovingAverage(MovingAverage&& other) noexcept;
    MovingAverage& operator=(MovingAverage&& other) noexcept;
    ~MovingAverage();

    /// average = decay * average + (1 - decay) * weights, of every element, frozen ones too. The weights are the
    /// masters where the model keeps some. Copies them with a decay of 0.
    /// Order:   stream-ordered behind the optimizer's step. Ranks compare the decay with the next call of the
    ///          average's groups
    /// @throws  std::invalid_argument for a decay outside [0, 1]; UsageError while a window of the average is open,
    ///          where values are half written, or where a load has read weights of the model and not their average,
    ///          unless the decay is 0: nothing has changed then
    void update(double decay, SourceLocation where = SourceLocation::current());

  private:
    detail::Owned<detail::AverageUpdates> updates_;
};

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/average/moving_average_members.hpp>
#endif
