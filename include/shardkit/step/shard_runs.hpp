// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/layout/segments.hpp>
#include <shardkit/param/tensor_shape.hpp>
#include <shardkit/param/tensor_view.hpp>

// What local_shards.hpp shows of a group.

namespace shardkit {

/// A contiguous run of one parameter's elements on this rank, in the engine's memory.
template <class T>
struct ShardRun {
    std::size_t parameter = 0;  ///< its number in the group
    std::string_view name;      ///< "weight"
    TensorShape part;           ///< shape of the rank's part under tp: the whole tensor where it is not split
    IndexRange range;           ///< the run's elements in that part, row-major
    IndexRange flat;            ///< the run's elements in the group's flat order
    bool frozen = false;
    std::span<T> values;
};

}  // namespace shardkit

namespace shardkit SHARDKIT_BUILD {

/// This rank's reduced gradients of one group: sums in the engine's memory that are not divided yet. It refers to the
/// gradients that it was taken from; a checked build refuses to read it once they were consumed.
template <class T>
class GradientShard {
  public:
    GradientShard(std::span<const T> sums, IndexRange flat, double scale, detail::ViewCheck check) noexcept
        : sums_(sums), flat_(flat), scale_(scale), check_(check) {}

    /// Returns all elements held, with the padding between parameters, whose values have no meaning.
    std::span<const T> sums() const {
        check_();
        return sums_;
    }
    /// Returns the range of these elements in the group's flat order.
    IndexRange flat() const noexcept { return flat_; }
    /// Returns the factor that turns a sum into a gradient: one over the divisor, and over the loss scale if there is
    /// one.
    double scale() const noexcept { return scale_; }
    /// Returns the sums of the elements of a run of the same group.
    /// @throws std::invalid_argument when not all of them are held here
    template <class Value>
    std::span<const T> of(const ShardRun<Value>& run, SourceLocation where = SourceLocation::current()) const {
        if (run.flat.begin < flat_.begin || run.flat.end > flat_.end) {
            throw_invalid_argument(where, "gradient_shard holds elements ", flat_.begin, " to ", flat_.end,
                                   " of its group, and '", run.name, "' here has ", run.flat.begin, " to ",
                                   run.flat.end, "; expected a run of the same group");
        }
        return sums().subspan(run.flat.begin - flat_.begin, run.flat.size());
    }

  private:
    std::span<const T> sums_;
    IndexRange flat_;
    double scale_;
    [[no_unique_address]] detail::ViewCheck check_;
};

}  // namespace SHARDKIT_BUILD

namespace shardkit::detail {

/// Calls f(run) for each parameter with elements among those that a rank updates, whose values begin at `values`.
template <class T, class F>
void list_runs(std::span<const PlacedParameter> parameters, IndexRange updated, bool frozen, T* values, const F& f) {
    for_each_segment(parameters, updated, [&](Segment segment) {
        const PlacedParameter& parameter = parameters[segment.parameter];
        f(ShardRun<T>{segment.parameter,
                      parameter.name,
                      parameter.part.shape(),
                      relative_to(segment.flat, parameter.range.begin),
                      segment.flat,
                      parameter.frozen || frozen,
                      {values + (segment.flat.begin - updated.begin), segment.flat.size()}});
    });
}

/// The text of an error: f takes elements of another type than there are.
inline constexpr const char* other_shards =
    "the shards in hand are of another type than f takes: a group that is frozen or rounds stochastically keeps no "
    "master weights; expected a generic f";
/// Refuses an f that takes neither the one type of elements nor the other.
template <template <class> class Shown, class Precision, class F>
constexpr void check_shard_function() {
    constexpr bool takes_master = std::invocable<const F&, ShardRun<Shown<typename Precision::Master>>>;
    constexpr bool takes_gathered = std::invocable<const F&, ShardRun<Shown<typename Precision::Written>>>;
    static_assert(takes_master || takes_gathered,
                  "read_shards and update_shards: f takes a ShardRun<T> by value, where T is the element type of the "
                  "group's master weights (const in read_shards), or anything, as a generic lambda does");
}

}  // namespace shardkit::detail
