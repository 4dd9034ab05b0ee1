// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <shardkit/core/codes.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/kernels/state_storage.hpp>

// What Kernels::update takes: the elements, which of them take which hyper-parameters, and the arithmetic.

namespace shardkit::rules {

/// The elements of one parameter among those that a rank updates: [begin, end) of the pass's spans. `update` is the
/// place of the parameter's update in the table that goes with the ranges; `element` the number of the first one,
/// which no mesh changes, where the update rounds stochastically.
struct UpdateRange {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint32_t update = 0;
    std::uint64_t element = 0;

    friend constexpr bool operator==(const UpdateRange&, const UpdateRange&) noexcept = default;
};

/// What decides the draws of an update that rounds stochastically: see detail::draws_of_block.
struct UpdateDraws {
    std::uint64_t seed = 0;
    const std::uint64_t* steps = nullptr;  ///< the engine's memory: which step it is
    std::uint64_t element = 0;             ///< the number of the first one, of a range that was cut out
};

/// What an update reads and writes; all spans have the same number of elements and none overlap.
/// `gathered` is the next all-gather's source; it is empty where the master itself is that source.
/// @post (of the update) gathered[i] is master[i], as stored, converted to Gather; of codes, what detail::BeginCodes
/// makes of all masters
template <FloatingElement MasterType, FloatingElement GatherType, FloatingElement GradientType,
          std::size_t StateCount, class Storage = detail::FullStates>
struct UpdateSpans {
    using Master = MasterType;
    using Gather = GatherType;
    using Gradient = GradientType;
    using StateStorage = std::conditional_t<StateCount == 0, detail::FullStates, Storage>;
    using A = Arithmetic<Master>;
    static constexpr std::size_t state_count = StateCount;

    std::span<Master> master;
    std::span<Gather> gathered;
    std::span<const Gradient> gradient;
    std::array<detail::StateSpan<StateStorage, A>, StateCount> states;
    /// Where a Master of 16 bits is rounded stochastically; without steps: to the nearest.
    UpdateDraws draws{};
    /// Of states that are not stored in A.
    UpdateDraws state_draws{};
    /// The lower halves of fp32 numbers whose upper halves are a Master of bf16; empty where that is all there is.
    std::span<std::uint16_t> rest{};
    /// Where codes in blocks are gathered: the blocks' scales.
    std::span<float> scales{};
};

/// Neighbouring elements that the host updates, in the update's arithmetic type A.
template <class A, std::size_t StateCount, class Storage>
struct UpdatedElements {
    std::size_t count;
    void* masters;   ///< of A, or of bf16 where `half` says so
    bool half;       ///< A is float, and so are states
    bf16* gathered;  ///< where masters of float are written in bf16 too, with states that are not; else null
    const A* gradients;
    std::array<detail::StateSpan<Storage, A>, StateCount> states;
    UpdateDraws draws;  ///< of states that are not stored in A
};

}  // namespace shardkit::rules

namespace shardkit {

namespace detail {

/// Returns the spans of an update that leaves alone what is gathered.
template <class Master, class Gather, class Gradient, std::size_t StateCount, class Storage>
constexpr auto without_gathered(
    const rules::UpdateSpans<Master, Gather, Gradient, StateCount, Storage>& spans) noexcept {
    return rules::UpdateSpans<Master, Master, Gradient, StateCount, Storage>{
        spans.master, {}, spans.gradient, spans.states, spans.draws, spans.state_draws, spans.rest};
}

template <class A, std::size_t>
using StateOf = A&;

template <class Update, class A, class Indices>
inline constexpr bool updates_with = false;
// A call's arguments spelled out: a requires-expression with a pack in it is more than nvcc 13.0 takes.
template <class Update, class A, std::size_t... State>
inline constexpr bool updates_with<Update, A, std::index_sequence<State...>> =
    std::is_invocable_v<const Update&, A&, StateOf<A, State>..., A>;

}  // namespace detail

}  // namespace shardkit

namespace shardkit::rules {

/// The progress of a rule that counts steps and nothing else: a base for the rule.
struct CountsSteps {
    struct Progress {
        std::uint64_t steps = 0;
    };
    template <class Options>
    static constexpr void advance(Progress& progress, const Options& /*options*/) noexcept {
        ++progress.steps;
    }
};

/// A member of a rule's Progress that advances with the steps, by name: what a checkpoint keeps of it.
template <class Progress>
struct ProgressProduct {
    using Member = double Progress::*;  // spelled out in place, nvcc 13.0 adds parentheses that g++ warns of

    std::string_view name;
    Member member;
};

/// One element's step in arithmetic type A: update(parameter, states..., gradient), const, with that many states. It
/// is called with values of A and with short vectors of A whose lanes behave alike, so it is a template; see
/// docs/own_optimizer.md for what both can do.
template <class Update, class A, std::size_t StateCount>
concept UpdateOf = std::floating_point<A> && detail::updates_with<Update, A, std::make_index_sequence<StateCount>>;

}  // namespace shardkit::rules

namespace shardkit::detail {

/// The element types of an update: of what it updates, of what is gathered, and of the reduced gradient.
template <class MasterType, class GatherType, class ReductionType>
struct UpdateTypes {
    using Master = MasterType;
    using Gather = GatherType;
    using Reduction = ReductionType;
    using A = Arithmetic<Master>;
};

/// Calls update(range) for the parts of ranges among some masters at a time, of `count` in all, and code(begin, end)
/// behind them, which begins their codes while they are in the nearest cache: those of masters that are not updated
/// too, and of all in a step that is skipped.
template <class Update, class Code>
void update_and_code(std::span<const rules::UpdateRange> ranges, bool skipped, std::size_t count,
                     const Update& update, const Code& code) {
    constexpr std::size_t together = 16 * coded_together;
    for (std::size_t begin = 0; begin < count; begin += together) {
        const std::size_t end = begin + together < count ? begin + together : count;
        while (!ranges.empty() && ranges.front().end <= begin) { ranges = ranges.subspan(1); }
        for (const rules::UpdateRange& range : ranges) {
            if (skipped || range.begin >= end) { break; }
            rules::UpdateRange part = range;
            if (part.begin < begin) { part.begin = begin; }
            if (part.end > end) { part.end = end; }
            part.element += part.begin - range.begin;
            update(part);
        }
        code(begin, end);
    }
}

/// Whether a rule's update takes so many states.
template <class Rule>
bool takes_states(std::size_t states) {
    return [states]<std::size_t... N>(std::index_sequence<N...>) {
        return ((states == N && rules::UpdateOf<typename Rule::template Update<float>, float, N>) || ...);
    }
    (std::make_index_sequence<Rule::state_names.size() + 1>{});
}

}  // namespace shardkit::detail
