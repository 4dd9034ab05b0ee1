// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/range.hpp>
#include <shardkit/kernels/state_storage.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/layout/segments.hpp>
#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/device_optimizers.hpp>
#include <shardkit/optim/group_progress.hpp>
#include <shardkit/optim/offload_pieces.hpp>
#include <shardkit/optim/offload_plan.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/state_kind.hpp>
#include <shardkit/optim/state_memory.hpp>
#include <shardkit/optim/update_table.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/sharded/group_buffer.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/sharded/held_memory.hpp>

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// A Progress as the numbers of a GroupProgress.
inline std::vector<std::uint64_t> numbers_of(const AnyProgress& progress) {
    std::vector<std::uint64_t> bits{progress.steps};
    if (progress.rule == nullptr) { return bits; }
    for (std::size_t i = 1; i < progress.rule->numbers().size(); ++i) {
        bits.push_back(std::bit_cast<std::uint64_t>(progress.products[i - 1]));
    }
    return bits;
}
/// And back, into a Progress of the rule.
inline AnyProgress progress_of(AnyProgress progress, const std::vector<std::uint64_t>& bits) {
    progress.steps = bits[0];
    for (std::size_t i = 1; i < bits.size(); ++i) { progress.products[i - 1] = std::bit_cast<double>(bits[i]); }
    return progress;
}

/// What an optimizer keeps for one group on one rank, and the group's update: states over the elements that this rank
/// updates, and a table of which elements take which update of the optimizer's. Compiled once for all groups.
class GroupOptimizer {
  public:
    /// What tells a parameter's hypers from others.
    struct Choice {
        std::size_t options = 0;                ///< their number among the optimizer's
        std::vector<std::uint64_t> progress{};  ///< how far they were when it was made
    };

    /// Makes the states.
    GroupOptimizer(Rank& rank, const GroupGeometry& group, const AnyOptions& options,
                   std::span<const ParamGroup> param_groups, SourceLocation where)
        : kind_(options.rule->states()) {
        bool any = false;
        for (const PlacedParameter& p : group.parameters) {
            const bool is = group.trainable && !p.frozen &&
                            !is_left_out(param_group_of(group.path, p.name, param_groups), param_groups);
            updated_.push_back(is ? 1 : 0);
            any = any || is;
        }
        if (!any) { return; }
        beginning_ = options.rule->beginning(group.arithmetic());
        states_used_ = options.rule->state_count(options);
        if (!options.rule->takes(states_used_)) {
            throw std::logic_error(concat("optimizer: Rule::state_count is ", states_used_,
                                          ", a number of states that Rule::Update does not take"));
        }
        require_argument(kind_.format == StateFormat::full || group.arithmetic() != ElementType::fp64, where,
                         "optimizer: '", group.path,
                         "' has a master of fp64, and states in bf16 or in blocks of 8 bits are those of "
                         "updates in fp32; expected StateFormat::full");
        if (kind_.require != nullptr) { kind_.require(group, updated_, where); }
        Fnv seed;
        seed.add(group.path);
        state_seed_ = seed.hash;
        for (std::size_t s = 0; s < states_used_; ++s) {
            states_.emplace_back(rank, kind_, group.arithmetic(), group, options.rule->state_name(s));
        }
        for (const auto& state : states_) { state_spans_.push_back(state.span()); }
        if (!group.offloads()) { return; }
        if (const RuleKind kind = options.rule->kind(); kind != RuleKind::elements) {
            throw_invalid_argument(
                where, "optimizer: '", group.path, "' has an Offload, and ",
                kind == RuleKind::matrices
                    ? "matrices are brought together from masters and states in the engine's memory"
                    : "sums over parameters are added from masters in the engine's memory",
                "; expected Offload::none");
        }
        offloaded_.piece = offload_piece(group, {states_used_, kind_.format}, rank.options().offload_slot_bytes);
        if (offloaded_.piece > 0) { on_device(where).make_slots(rank, group.path, group.offload); }
    }
    GroupOptimizer(GroupOptimizer&&) noexcept = default;
    GroupOptimizer& operator=(GroupOptimizer&&) noexcept = default;
    ~GroupOptimizer() {
        if (reader_ == nullptr) { return; }
        end_program("an optimizer ended or was assigned to while a save of its states is pending: commit it before");
    }

    /// Takes its place among `updates`. `progress`: how far each parameter is; null: at the beginning.
    void choose(Rank& rank, const GroupGeometry& group, std::span<const ParamGroup> param_groups,
                const GroupProgress* progress, UpdateTable& updates) {
        if (!has(updated_, 1)) { return; }
        const std::vector<std::uint64_t> beginning = numbers_of(beginning_);
        choices_.clear();
        choices_.push_back({0, progress != nullptr ? progress->own : beginning});
        chosen_.clear();
        later_.clear();
        const auto chosen = [&](std::size_t p, const std::uint64_t* its) {
            const PlacedParameter& parameter = group.parameters[p];
            const std::size_t options =
                options_number(param_group_of(group.path, parameter.name, param_groups), parameter.decay);
            for (std::size_t number = 0; number < choices_.size(); ++number) {
                const Choice& made = choices_[number];
                if (made.options == options && std::equal(made.progress.begin(), made.progress.end(), its)) {
                    return number;
                }
            }
            choices_.push_back({options, {its, its + beginning.size()}});
            return choices_.size() - 1;
        };
        // Of all parameters, so that every rank has the same choices.
        std::vector<std::size_t> before{0};
        for (std::size_t p = 0; p < group.parameters.size(); ++p) {
            const std::uint64_t* const its = progress != nullptr ? progress->of(p).data() : beginning.data();
            chosen_.push_back(updated_[p] != 0 ? chosen(p, its) : GroupProgress::none);
            before.push_back(before.back() + group.parameters[p].shape.numel());
        }
        if (progress != nullptr) {
            for (const auto& part : progress->parts) {
                later_.push_back({part.parameter, part.begin, chosen(part.parameter, part.numbers.data())});
            }
        }
        List<ParameterHypers> hypers;
        for (const Choice& choice : choices_) {
            hypers.push_back({choice.options, progress_of(beginning_, choice.progress)});
        }
        List<rules::UpdateRange> ranges;
        const bool rounds = group.stochastic_rounding.has_value() || kind_.format != StateFormat::full;
        const auto add = [&](std::size_t begin, std::size_t end, std::size_t choice, std::uint64_t at) {
            rules::UpdateRange next{begin, end, updates.size() + static_cast<std::uint32_t>(choice), rounds ? at : 0};
            append_merged(ranges, next, !ranges.empty() && continues(ranges.back(), next));
        };
        for_each_updated_run(group, rounds || !later_.empty(),
                             [&](std::size_t parameter, IndexRange flat, std::uint64_t element) {
                                 const IndexRange range = relative_to(flat, group.updated.begin);
                                 std::size_t begin = range.begin;
                                 std::size_t choice = chosen_[parameter];
                                 // Cut where further elements of the parameter begin.
                                 for (const Later& later : later_) {
                                     if (later.parameter != parameter) { continue; }
                                     const std::size_t at = before[parameter] + later.begin;
                                     if (at >= element + range.size()) { break; }
                                     if (at > element) {
                                         const std::size_t end = range.begin + (at - element);
                                         add(begin, end, choice, element + (begin - range.begin));
                                         begin = end;
                                     }
                                     choice = later.choice;
                                 }
                                 add(begin, range.end, choice, element + (begin - range.begin));
                             });
        if (offloaded_.cut(ranges, group, rounds)) { updates.keep_host_copy(); }
        first_update_ = updates.size();
        number_ = updates.add(hypers);
        ranges_ = {rank, ranges.data(), ranges.size()};
    }
    /// Whether it updates a parameter, which is neither frozen nor another optimizer's.
    bool updates(std::size_t parameter) const noexcept { return updated_[parameter] != 0; }
    const List<char>& updated() const noexcept { return updated_; }

    std::size_t states_used() const noexcept { return states_used_; }
    std::string_view state_name(std::size_t s) const noexcept { return states_[s].name(); }
    /// Its progress before the first step.
    const AnyProgress& beginning() const noexcept { return beginning_; }
    /// The states of the elements that this rank updates.
    const AnyStateSpan* state_spans() const noexcept { return state_spans_.data(); }
    /// What draws of the states' rounding depend on.
    std::uint64_t state_seed() const noexcept { return state_seed_; }
    /// The number of a parameter's update in the UpdateTable.
    /// @pre updates(parameter)
    std::uint32_t update_of(std::size_t parameter) const noexcept {
        return first_update_ + static_cast<std::uint32_t>(chosen_[parameter]);
    }
    /// Whether some elements of a parameter have taken other numbers of steps than the rest.
    bool uneven() const noexcept { return !later_.empty(); }
    /// Which elements, relative to those that this rank updates, take which of the optimizer's updates; sorted.
    /// Parameters that lie side by side and take the same one are one range. The engine's memory. Of an offloaded
    /// group: see `pieces`.
    std::span<const rules::UpdateRange> ranges() const noexcept { return ranges_.span(); }

    /// Returns the pieces in which the group is updated; none where nothing of it is offloaded.
    const List<OffloadPiece>& pieces() const noexcept { return offloaded_.pieces; }
    OffloadedGroup& offloaded() noexcept { return offloaded_; }

    /// The gradient of the elements that this rank updates of its group, which may lie in a leased buffer.
    static StoredElements gradient(Group& group) { return group.gradients().held(group.geometry().updated); }

    /// Appends what this rank holds of every state.
    void list(const GroupGeometry& group, List<HeldMemory>& held) const {
        std::uint32_t squares = kind_.squares;
        for (const auto& state : states_) {
            state.list(group, (squares & 1U) != 0, updated_, held);
            squares >>= 1U;
        }
    }

    /// Who reads the states beside the rank's own work; null: nobody. Whoever sets it says when it is over.
    MemoryReader*& reader() noexcept { return reader_; }

    /// Its place in the UpdateTable; none where it updates no parameter.
    std::optional<std::size_t> number() const noexcept { return number_; }
    /// How far its updates in `table` are.
    GroupProgress progress(const UpdateTable& table) const {
        GroupProgress progress;
        progress.numbers = beginning_.rule->numbers();
        List<std::vector<std::uint64_t>> of;
        for (std::size_t c = 0; c < choices_.size(); ++c) { of.push_back(numbers_of(table.progress(*number_, c))); }
        progress.own = of.front();
        progress.beginning = numbers_of(beginning_);
        for (const Later& later : later_) {
            progress.parts.push_back({later.parameter, later.begin, of[later.choice]});
        }
        for (const std::size_t chosen : chosen_) {
            const std::size_t choice = chosen == GroupProgress::none ? 0 : chosen;
            progress.parameters.insert(progress.parameters.end(), of[choice].begin(), of[choice].end());
        }
        progress.updated = updated_;
        return progress;
    }
    /// Whether parameters that share a choice are as far as each other in `progress`, so that it can be set.
    bool takes(const GroupProgress& progress) const { return !numbers_of_choices(progress).empty(); }
    /// Whether no block of 8 bits would have elements of two different numbers of steps.
    bool cuts_at_blocks(const GroupProgress& progress) const noexcept {
        return kind_.require == nullptr || !any_that(progress.parts, [](const GroupProgress::Part& part) {
                   return part.begin % Block8::block != 0;
               });
    }
    /// Sets what it takes.
    void set_progress(const GroupProgress& progress, UpdateTable& table) const {
        const auto numbers = numbers_of_choices(progress);
        for (std::size_t c = 0; c < numbers.size(); ++c) {
            table.set_progress(*number_, c, progress_of(beginning_, numbers[c]));
        }
    }

  private:
    /// How far each choice is where those that share one are as far as each other; empty where they are not.
    List<std::vector<std::uint64_t>> numbers_of_choices(const GroupProgress& progress) const {
        List<std::vector<std::uint64_t>> of(choices_.size());
        const auto agrees = [&](std::size_t choice, const std::uint64_t* numbers) {
            std::vector<std::uint64_t>& its = of[choice];
            if (its.empty()) { its.assign(numbers, numbers + progress.numbers.size()); }
            return std::equal(its.begin(), its.end(), numbers);
        };
        for (std::size_t p = 0; p < chosen_.size(); ++p) {
            if (chosen_[p] != GroupProgress::none && !agrees(chosen_[p], progress.of(p).data())) { return {}; }
        }
        if (progress.parts.size() != later_.size()) { return {}; }
        for (std::size_t i = 0; i < later_.size(); ++i) {
            const auto& part = progress.parts[i];
            const bool same = part.parameter == later_[i].parameter && part.begin == later_[i].begin;
            if (!same || !agrees(later_[i].choice, part.numbers.data())) { return {}; }
        }
        // The first choice, which need not be any parameter's, counts the group's steps.
        if (of.front().empty()) { of.front() = progress.own; }
        if (of.front()[0] != progress.own[0]) { return {}; }
        return of;
    }

    /// Elements of a parameter from `begin` on, as in GroupProgress.
    struct Later {
        std::size_t parameter;
        std::size_t begin;
        std::size_t choice;
    };

    /// f(parameter, its elements in the flat buffer, the first one's number in the order of whole parameters) for all
    /// that this rank updates. No number is given unless `counted`.
    template <class F>
    void for_each_updated_run(const GroupGeometry& group, bool counted, const F& f) const {
        std::vector<std::uint64_t> before(counted ? 1 : 0);
        for (std::size_t p = 0; counted && p < group.parameters.size(); ++p) {
            before.push_back(before.back() + group.parameters[p].shape.numel());
        }
        for_each_segment(group.parameters.span(), group.updated, [&](Segment segment) {
            const PlacedParameter& p = group.parameters[segment.parameter];
            if (!updates(segment.parameter)) { return; }
            if (!counted) { return f(segment.parameter, segment.flat, std::uint64_t{0}); }
            p.part.for_each_run(
                segment.flat.begin - p.range.begin, segment.flat.end - p.range.begin,
                [&](std::size_t part, std::size_t whole, std::size_t run) {
                    const std::size_t begin = p.range.begin + part;
                    f(segment.parameter, IndexRange{begin, begin + run}, before[segment.parameter] + whole);
                });
        });
    }
    static bool continues(const rules::UpdateRange& last, const rules::UpdateRange& next) noexcept {
        const bool counted = last.element != 0 || next.element != 0;
        return last.update == next.update && (!counted || last.element + (last.end - last.begin) == next.element);
    }

    // Buffers first: the table ends before them, and waits for the kernels that use both.
    List<StateMemory> states_;
    List<AnyStateSpan> state_spans_;
    StateKind kind_;
    AnyProgress beginning_{};
    std::size_t states_used_ = 0;
    std::uint64_t state_seed_ = 0;  // of how states are rounded
    OffloadedGroup offloaded_;
    EngineTable<rules::UpdateRange> ranges_;  // of what this rank updates
    std::optional<std::size_t> number_;
    std::uint32_t first_update_ = 0;
    List<Choice> choices_;             // what its hypers in the UpdateTable were chosen by; the same on every rank
    List<char> updated_;               // of each parameter, whether it is
    std::vector<std::size_t> chosen_;  // by each parameter, of these; none where it is not updated
    List<Later> later_;                // of parameters that are not everywhere as far
    MemoryReader* reader_ = nullptr;
};

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
