// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/average/moving_average.hpp>
#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/spi/groups.hpp>
#include <shardkit/spi/launches.hpp>
#include <shardkit/spi/ranks.hpp>
#include <shardkit/spi/updates.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/verbs/communicator.hpp>

// Defines the members of MovingAverage.

namespace shardkit::rules {

/// One element of a moving average, in arithmetic type A: average += (1 - decay) * (value - average). V as for
/// AdamWUpdate. Where both are equal they stay so, bit for bit; with a decay of 0 the average becomes the value.
/// Source:  torch.optim.swa_utils.get_ema_multi_avg_fn, which is torch.lerp
template <std::floating_point A>
struct MovingAverageUpdate {
    A decay = 0;
    A rest = 1;  ///< 1 - decay

    template <class V>
    [[gnu::always_inline]] constexpr void operator()(V& average, V value) const {
        if (decay == A{0}) {
            average = value;
        } else if (rest < A{0.5}) {
            average = average + rest * (value - average);
        } else {
            average = value - decay * (value - average);
        }
    }
};

}  // namespace shardkit::rules

namespace shardkit::detail {

/// A moving average's part of its updates.
struct MovingAverageRule {
    template <class A>
    using Update = rules::MovingAverageUpdate<A>;
    static constexpr std::array<std::string_view, 0> state_names{};
};

/// What updates of moving averages read, in the engine's memory.
struct MovingAverageNumbers {
    AnyRuleUpdate in_float;
    AnyRuleUpdate in_double;
    std::uint32_t skip = 0;  ///< no update is left out
};
/// Sets them in a stream's order. Run once.
struct SetMovingAverage {
    double decay;
    MovingAverageNumbers* to;

    constexpr void operator()() const {
        set<float>(to->in_float);
        set<double>(to->in_double);
    }

  private:
    template <class A>
    constexpr void set(AnyRuleUpdate& update) const {
        const rules::MovingAverageUpdate<A> made{static_cast<A>(decay), static_cast<A>(1 - decay)};
        std::memcpy(update.bytes, &made, sizeof made);
    }
};

}  // namespace shardkit::detail

namespace shardkit::detail SHARDKIT_FACE {

/// The updates of a moving average.
class AverageUpdates {
  public:
    AverageUpdates(const Model& average, const Model& of, SourceLocation where) : average_(average), of_(of) {
        List<rules::UpdateRange> ranges;
        for_each_pair(
            [&](Group& to, Group& from) {
                check(to, from, where);
                ranges.push_back({0, to.geometry().updated.size()});
            },
            where);
        auto& rank = rank_of(of, where);
        rank.require_same("MovingAverage", rank_of(average, where), "average", where);
        ranges_ = {rank, std::span<const rules::UpdateRange>(ranges)};
        numbers_ = {rank, MovingAverageNumbers{}};
        List<char> begun;
        std::size_t number = 0;
        for_each_pair(
            [&](Group& to, Group& from) {
                begun.push_back(was_loaded(to, where) ? 1 : 0);
                require_launch(work(to, Elements(from), number++), to, from, where);
            },
            where);
        update_where(begun, 0, where);
    }

    void update(double decay, SourceLocation where) {
        if (!(decay >= 0 && decay <= 1)) {
            throw_invalid_argument(where, "MovingAverage: decay is ", number_text(decay),
                                   ", expected a number from 0 to 1");
        }
        update_where({}, decay, where);
    }

  private:
    /// f(average's group, the model's) for every pair of groups.
    template <class F>
    void for_each_pair(const F& f, SourceLocation where) {
        std::vector<Group*> sources;
        for (Group& group : spi::groups(of_, where)) { sources.push_back(&group); }
        require_argument(sources.size() == average_.size(), where, "MovingAverage: the average has ", average_.size(),
                         " groups, the model ", sources.size(), "; expected one for each");
        std::size_t next = 0;
        for (Group& to : spi::groups(average_, where)) { f(to, *sources[next++]); }
    }

    /// Updates the groups that are not `left`, all where that is empty.
    void update_where(const List<char>& left, double decay, SourceLocation where) {
        List<Loads> loads;
        for_each_pair(
            [&](Group& to, Group& from) {
                to.require_whole("the update of a moving average", where);
                from.require_whole("the update of a moving average", where);
                for (std::size_t p = 0; p < to.geometry().parameters.size(); ++p) {
                    loads.push_back({to.loads(p), from.loads(p)});
                    if (decay > 0) { require_loaded_together(to, from, p, loads, where); }
                }
                to.begin_write(where);
            },
            where);
        loads_ = std::move(loads);
        auto& rank = rank_of(of_, where);
        if (stated_ == nullptr || decay != decay_) {
            if (auto* const book = book_of(rank.world())) {
                stated_ = book->keep({{"decay of the moving average", number_text(decay), where}});
            }
            decay_ = decay;
            host::AnyKernels::run_once(rank.compute_stream(), SetMovingAverage{decay, numbers_.data()});
        }
        std::size_t number = 0;
        for_each_pair(
            [&](Group& to, Group& from) {
                if (left.empty() || left[number] == 0) { run(to, from, number); }
                ++number;
            },
            where);
    }
    /// How often a parameter's average and its weights were loaded.
    struct Loads {
        std::uint64_t average = 0;
        std::uint64_t weights = 0;
    };
    void require_loaded_together(const Group& to, const Group& from, std::size_t p, const List<Loads>& now,
                                 SourceLocation where) const {
        const Loads& before = loads_[now.size() - 1];
        if (now.back().weights == before.weights || now.back().average != before.average) { return; }
        throw_usage_error(where, "the update of a moving average: a load has read '", from.path(), ".",
                          from.geometry().parameters[p].name, "' since the average began and not '", to.path(), ".",
                          to.geometry().parameters[p].name,
                          "', which is an average of other weights: expected a load of both, a MovingAverage that is "
                          "made behind the load, or update(0), which copies");
    }
    /// Whether a load has read the weights of a group of averages.
    static bool was_loaded(const Group& to, SourceLocation where) {
        const auto& parameters = to.geometry().parameters;
        std::size_t loaded = 0;
        for (std::size_t p = 0; p < parameters.size(); ++p) { loaded += to.loads(p) > 0 ? 1U : 0U; }
        if (loaded == 0 || loaded == parameters.size()) { return loaded > 0; }
        throw_invalid_argument(where, "MovingAverage: a load has read ", loaded, " of the ", parameters.size(),
                               " parameters of '", to.path(),
                               "', of which the others have no average: expected all or none");
    }

    static void check(Group& to, Group& from, SourceLocation where) {
        const GroupGeometry& a = to.geometry();
        const GroupGeometry& b = from.geometry();
        bool same = a.parameters.size() == b.parameters.size() && a.updated == b.updated;
        for (std::size_t p = 0; same && p < a.parameters.size(); ++p) {
            same = a.parameters[p].shape == b.parameters[p].shape && a.parameters[p].range == b.parameters[p].range;
        }
        require_argument(same, where, "MovingAverage: '", a.path,
                         "' has or updates other elements on this rank than '", b.path, "': ", a.updated.begin,
                         " to ", a.updated.end, " of ", a.buffer_numel, ", and ", b.updated.begin, " to ",
                         b.updated.end, " of ", b.buffer_numel,
                         "; expected the same parameters, a policy that shards optimizers alike, and a "
                         "Precision with as narrow an element");
        for (const PlacedParameter& p : a.parameters) {
            // Of codes none can be frozen whole.
            require_argument(p.frozen || a.sizes.codes.gathered, where, "MovingAverage: '", a.path, ".", p.name,
                             "' is not frozen, and its group would hold gradients of an average; expected "
                             "Options::frozen with all parameters");
        }
        require_argument(a.table.gathers || a.updated.size() == a.buffer_numel, where, "MovingAverage: '", a.path,
                         "' is frozen, and its policy gathers no parameters "
                         "of such a group; expected FullShard");
        require_argument(!a.splits_master(), where, "MovingAverage: '", a.path,
                         "' splits its masters, expected MasterWeights::kept for the average");
        const Elements averages(to);
        const Elements values(from);
        require_argument(size_of(averages.stored.type()) >= sizeof(float), where, "MovingAverage: '", a.path,
                         "' keeps averages in ", name(averages.stored.type()),
                         ", in which what an update adds is lost; expected fp32 elements or masters");
        require_argument(averages.types.arithmetic == values.types.arithmetic, where, "MovingAverage: '", a.path,
                         "' is updated in ", name(averages.types.arithmetic), ", and '", b.path, "' in ",
                         name(values.types.arithmetic), "; expected masters of one arithmetic type");
    }

    /// The elements that a rank updates of a group, in memory `joined` where it splits its masters.
    struct Elements {
        StoredElements stored;
        HostConversions::Updated types{};

        explicit Elements(Group& group, float* joined = nullptr) {
            const HostConversions& conversions = group.elements().on_host;
            if (group.geometry().keeps_master()) {
                stored = group.parameters().master();
                types = conversions.masters;
            } else if (group.geometry().splits_master()) {
                stored = {joined, group.geometry().updated.size(), ElementType::fp32};
                types.arithmetic = ElementType::fp32;
            } else {
                stored = group.parameters().gather_source();
                types = conversions.stored;
            }
        }
    };

    AnyUpdateWork work(Group& to, const Elements& from, std::size_t number) const {
        const Elements averages(to);
        const bool kept = to.geometry().keeps_master();
        const MovingAverageNumbers* const numbers = numbers_.data();
        const bool in_double = averages.types.arithmetic == ElementType::fp64;
        return {
            .rule = &updates_of<MovingAverageRule, host::AnyKernels::Loops>,
            .conversions = &to.elements().on_host,
            .load_gradients = from.types.load,
            .ranges = ranges_.span().subspan(number, 1),
            .updates = in_double ? &numbers->in_double : &numbers->in_float,
            .skip = &numbers->skip,
            .count = averages.stored.size(),
            .arithmetic = averages.types.arithmetic,
            .updated = averages.stored.type(),
            .gathers = to.elements().gather,
            .gradients = from.stored.type(),
            .codes = to.geometry().sizes.codes,
            .master = averages.stored.data(),
            .gathered = kept ? to.parameters().gather_source().data() : nullptr,
            .gradient = from.stored.data(),
            .scales = kept ? to.parameters().updated_scales().data() : nullptr,
        };
    }
    static void require_launch(const AnyUpdateWork& average, const Group& to, const Group& from,
                               SourceLocation where) {
        if (host_reads(to.rank().compute_stream()) || average.launches()) { return; }
        throw_usage_error(where, "MovingAverage: no file of this program launches the average of '", from.path(),
                          "' in '", to.path(), "', of ", name(average.gradients), " in ", name(average.updated), " (",
                          name(average.gathers),
                          " gathered), on a device: expected a shardkit::nccl::AverageKernelsFor of both groups' "
                          "Precisions, instantiated in a file that nvcc compiles");
    }
    void run(Group& to, Group& from, std::size_t number) const {
        const auto stream = to.rank().compute_stream();
        if (from.geometry().splits_master()) {
            const auto joined = from.join_masters();
            work(to, Elements(from, joined.data()), number).give(stream);
            stream.settle();
        } else {
            work(to, Elements(from), number).give(stream);
        }
        to.parameters().end_update(stream.record(), to.parameters().capture());
        to.statements().add_update(statement_hash(3, std::bit_cast<std::uint64_t>(decay_)), hash_of(stated_));
    }

    Model average_;
    Model of_;
    EngineTable<rules::UpdateRange> ranges_;  // of each group
    EngineTable<MovingAverageNumbers> numbers_;
    List<Loads> loads_;  // of each parameter, when it was last updated
    double decay_ = 0;
    StatementsHandle stated_;  // of the decay
};

}  // namespace shardkit::detail SHARDKIT_FACE

namespace shardkit SHARDKIT_FACE {

SHARDKIT_CORE_INLINE MovingAverage::MovingAverage(const Model& average, const Model& of, SourceLocation where)
    : updates_(new detail::AverageUpdates(average, of, where)) {}
SHARDKIT_CORE_INLINE MovingAverage::MovingAverage(MovingAverage&& other) noexcept = default;
SHARDKIT_CORE_INLINE MovingAverage& MovingAverage::operator=(MovingAverage&& other) noexcept = default;
SHARDKIT_CORE_INLINE MovingAverage::~MovingAverage() = default;
SHARDKIT_CORE_INLINE void MovingAverage::update(double decay, SourceLocation where) {
    if (!updates_) {
        throw_usage_error(where,
                          "a MovingAverage was used after it was moved from: use the one that it was moved to");
    }
    updates_->update(decay, where);
}

}  // namespace SHARDKIT_FACE
