// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_files.hpp>
#include <shardkit/checkpoint/checkpoint_plan.hpp>
#include <shardkit/checkpoint/load_run.hpp>
#include <shardkit/checkpoint/options.hpp>
#include <shardkit/checkpoint/prove_load.hpp>
#include <shardkit/checkpoint/same_on_all_ranks.hpp>
#include <shardkit/checkpoint/state_to_save_or_load.hpp>
#include <shardkit/checkpoint/write_jobs.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/reshard/boxes.hpp>
#include <shardkit/reshard/move_values.hpp>
#include <shardkit/reshard/reshard.hpp>
#include <shardkit/reshard/reshard_options.hpp>
#include <shardkit/reshard/reshard_plan.hpp>
#include <shardkit/reshard/reshard_wire.hpp>
#include <shardkit/reshard/source_files.hpp>
#include <shardkit/reshard/transfers.hpp>
#include <shardkit/spi/ranks.hpp>

namespace shardkit::detail {

/// One reshard on one rank. It is a load of the files that a save of the source would make, whose tensors are not
/// read from files but taken from the ranks that hold them.
class ReshardRun {
  public:
    ReshardRun(RankWorld& all, ReshardWire& wire, const ReshardOptions& options, SourceLocation where)
        : all_(all), wire_(wire), options_(options), where_(where) {}

    /// Finds what is moved, and checks that it can be; nothing has changed then. Collective, as the other functions.
    /// @param from  the source's state, @param to  the destination's; null on a rank that has none
    void prepare(const checkpoint::State* from, const checkpoint::State* to) {
        has_from_ = from != nullptr;
        has_to_ = to != nullptr;
        std::optional<CheckpointPlan> plan;
        together(all_, where_, [&] {
            if (options_.staging_bytes < least_staging) {
                throw_invalid_argument(where_, "reshard: staging_bytes is ", options_.staging_bytes,
                                       ", expected at least ", least_staging);
            }
            if (from == nullptr) { return; }
            source_ = from->capture(where_);
            for (const auto& group : source_.groups) {
                group->require_idle("reshard", where_);
                group->group().require_whole("reshard", where_);
            }
            plan.emplace(source_, options_.names, std::numeric_limits<std::uint64_t>::max(), where_);
            require_zero_padding(*plan);
        });
        find_sides();
        require_same_sources(plan ? &*plan : nullptr);
        files_ = share<SourceFiles>(from_ranks_, plan.has_value(), [&] { return SourceFiles::of(*plan, source_); });
        shown_.emplace(files_.files, files_.index, SourceFiles::folder, files_.manifest);
        together(all_, where_, [&] {
            if (to == nullptr) { return; }
            checkpoint::LoadOptions options;
            options.names = options_.to_names ? options_.to_names : options_.names;
            options.states = options_.states;
            options.subset = options_.subset;
            options.grown = options_.grown;
            load_.emplace(all_, std::move(options), where_, "reshard");
            load_->plan(
                [&] { return CheckpointFiles::of_checkpoint(*shown_, std::string(SourceFiles::folder), where_); },
                *to, LoadPlan::Twice::refused);
            require_apart();
            find_targets();
        });
        RankWorld destinations(all_, to_ranks_);
        if (load_) {
            load_->require_same_plans(destinations);
        } else {
            require_same(destinations, "reshard", "", 0, where_);
        }
    }
    ReshardPlan plan() {
        ReshardSides sides;
        sides.from = files_.boxes;
        sides.to = share<Boxes>(to_ranks_, load_.has_value(), [&]() -> const Boxes& { return targets_; });
        sides.hosts = wire_.hosts();
        sides.sends.resize(all_.size());
        for (const std::size_t rank : from_ranks_) { sides.sends[rank] = 1; }
        sides.message_limit = options_.staging_bytes / 2;
        sides.from_held = gather(held_of(source_, has_from_), sides.from.values);
        sides.to_held = gather(needed(), sides.to.values);
        std::optional<Transfers> transfers;
        together(all_, where_, [&] { transfers.emplace(sides, all_.rank(), where_); });
        return ReshardPlan(PlannedReshard{std::move(*transfers), planned_from(), planned_to()}, options_);
    }
    /// Checks that a plan is one of these states. @throws UsageError on every rank that names what differs
    void require(const PlannedReshard& planned) {
        together(all_, where_, [&] {
            const auto refuse = [&](std::string_view side, const std::string& what) {
                if (what.empty()) { return; }
                throw_usage_error(where_, "reshard: the plan was made for another ", side, ": ", what,
                                  "; expected a new plan_reshard");
            };
            if (const std::size_t ranks = planned.transfers.ranks; ranks != all_.size()) {
                refuse("world", concat("it has ", ranks, " ranks, this one ", all_.size()));
            }
            refuse("source", planned.from.difference(planned_from()));
            refuse("destination", planned.to.difference(planned_to()));
        });
    }
    /// Moves the values. @param to  as in `prepare`
    ReshardReport move(const Transfers& transfers, const checkpoint::State* to) {
        List<const SavedValues*> values;
        for (const auto& group : source_.groups) {
            for (const auto& each : group->values) { values.push_back(each.get()); }
        }
        if (load_) { load_->begin(); }
        Failure failure;
        try {
            MoveValues moves(wire_, transfers, files_.boxes, values, load_ ? &*load_ : nullptr, where_);
            // Memory of verbs is allocated alike on all ranks.
            const auto staged = all_.gather(moves.staged_bytes(), where_);
            const std::size_t most = *std::max_element(staged.begin(), staged.end());
            failure = all_.first(moves.run(all_.rank(), most), where_);
        } catch (...) {
            end_writing();
            throw;
        }
        end_writing();
        failure.raise(where_);
        together(all_, where_, [&] {
            if (load_) { load_->take_numbers(*to); }
        });
        if (!load_) { return {}; }
        checkpoint::LoadReport done = load_->end();
        return {load_->targets().size(), std::move(done.left), std::move(done.unused), std::move(done.grown)};
    }

  private:
    static constexpr std::size_t least_staging = 4096;

    void end_writing() {
        if (load_) { load_->end_writing(); }
    }
    /// Compares the options, and finds which ranks are on which side.
    void find_sides() {
        struct Sides {
            bool from, to;
        };
        const std::string options =
            concat("staging_bytes ", options_.staging_bytes, options_.states ? "" : ", without states",
                   options_.subset ? ", a subset" : "");
        Fnv identity;
        identity.add(options);
        require_same(all_, "reshard", options, identity.hash, where_);
        const auto sides = all_.gather(Sides{has_from_, has_to_}, where_);
        for (std::size_t rank = 0; rank < sides.size(); ++rank) {
            if (sides[rank].from) { from_ranks_.push_back(rank); }
            if (sides[rank].to) { to_ranks_.push_back(rank); }
        }
        const std::string_view without = from_ranks_.empty() ? "a source" : to_ranks_.empty() ? "a destination" : "";
        if (without.empty()) { return; }
        throw_invalid_argument(where_, "reshard: no rank has ", without, ": expected one on some ranks");
    }
    /// Checks that all ranks of the source would save the same.
    void require_same_sources(const CheckpointPlan* plan) {
        RankWorld sources(all_, from_ranks_);
        require_same_updates(sources, "reshard", source_.groups, where_);
        const std::uint64_t mine = plan == nullptr ? 0 : plan->hash();
        const std::size_t other = first_apart(sources.gather(mine, where_));
        if (other == sources.size()) { return; }
        Statements own;
        if (plan != nullptr) { plan->list(own); }
        const auto [first, second] = stated_apart(0, other, where_, [&](std::size_t number) {
            return sources.gather(StatementRecord(own, number), where_);
        });
        throw_invalid_argument(where_, "reshard: the source of rank ", sources.member(0), first, ", of rank ",
                               sources.member(other), second,
                               ", expected the same groups, names, scalars and blobs on every rank");
    }
    /// Gives every rank what the first one of a side, if it `has` the side, `makes`.
    template <class T, class Makes>
    T share(const List<std::size_t>& side, bool has, const Makes& makes) {
        const std::size_t root = side.front();
        Parcel parcel;
        if (has && all_.rank() == root) { makes().add_to(parcel); }
        std::string bytes = std::move(parcel).take();
        std::uint64_t size = bytes.size();
        wire_.broadcast(std::as_writable_bytes(std::span(&size, 1)), root, where_);
        bytes.resize(static_cast<std::size_t>(size));
        wire_.broadcast(std::as_writable_bytes(std::span(bytes)), root, where_);
        OpenedParcel opened(bytes);
        return T::of(opened);
    }
    /// Checks that no group is on both sides of this rank.
    void require_apart() const {
        for (const auto& from : source_.groups) {
            for (const auto& to : load_->state().groups) {
                if (&from->geometry() != &to->geometry()) { continue; }
                throw_invalid_argument(where_, "reshard: '", to->geometry().path,
                                       "' is in the source and in the destination, expected other groups");
            }
        }
    }
    /// Lists the tensors that this rank's destination takes.
    void find_targets() {
        List<std::size_t> first_values;
        for (const auto& group : load_->state().groups) {
            first_values.push_back(targets_.values);
            targets_.values += group->values.size();
        }
        for (const LoadRun::Target& target : load_->targets()) {
            const PlannedTensor& its = target.tensor;
            const SavedValues& values = *load_->group(target).values[its.values];
            const PlacedParameter& parameter = values.geometry().parameters[its.parameter];
            targets_.tensors.push_back({files_.number(load_->files().path(*target.from)),
                                        first_values[its.group] + its.values, its.begin,
                                        safetensors::bits_of(target.from->tensor.type) / 8, size_of(values.type),
                                        parameter.range, parameter.part, its.order});
            targets_.names.push_back(its.name);
        }
    }
    static List<HeldElements> held_of(const SavedState& state, bool saved) {
        List<HeldElements> held;
        for (const auto& group : state.groups) {
            for (const auto& values : group->values) {
                const IndexRange range = saved ? values->saved : values->loaded;
                held.push_back({range.begin, range.end, values->geometry().tp_index, values->geometry().ep_index});
            }
        }
        return held;
    }
    List<HeldElements> needed() const { return load_ ? held_of(load_->state(), false) : List<HeldElements>(); }
    /// Returns all ranks' ranges; those of a rank that is not on the side are empty.
    List<List<HeldElements>> gather(List<HeldElements> mine, std::size_t count) {
        mine.resize(count);
        const auto all = all_.gather(mine.span(), where_);
        List<List<HeldElements>> by_rank;
        for (std::size_t rank = 0; rank < all_.size(); ++rank) {
            by_rank.push_back(List<HeldElements>(all.data() + rank * count, all.data() + (rank + 1) * count));
        }
        return by_rank;
    }
    PlannedSide planned_from() const { return {files_.boxes, held_of(source_, true)}; }
    PlannedSide planned_to() const { return {targets_, needed()}; }

    /// Checks that rows of padding, which no rank is sent, are zero, as a save does.
    void require_zero_padding(const CheckpointPlan& plan) const {
        ValueMemory memory(where_);
        std::vector<std::byte> bytes;
        for (const PlannedFile& file : plan.files) {
            for (const PlannedTensor& tensor : file.tensors) {
                if (!tensor.order.padded()) { continue; }
                const SavedValues& values = *source_.groups[tensor.group]->values[tensor.values];
                const PlacedParameter& parameter = values.geometry().parameters[tensor.parameter];
                const IndexRange held = intersect(parameter.range, values.saved);
                parameter.part.for_each_run(held.begin - parameter.range.begin, held.end - parameter.range.begin,
                                            [&](std::size_t i, std::size_t whole, std::size_t count) {
                                                const std::size_t first = std::max(whole, tensor.order.numel());
                                                if (first >= whole + count) { return; }
                                                const std::size_t padding = whole + count - first;
                                                bytes.resize(padding * size_of(tensor.type));
                                                memory.read(values, parameter.range.begin + i + (first - whole), 1,
                                                            padding, bytes.data());
                                                WriteJobs::require_zero(tensor, bytes, where_);
                                            });
            }
        }
    }

    RankWorld& all_;
    ReshardWire& wire_;
    const ReshardOptions& options_;
    SourceLocation where_;
    bool has_from_ = false;
    bool has_to_ = false;
    List<std::size_t> from_ranks_, to_ranks_;
    SavedState source_;
    SourceFiles files_;
    std::optional<PlannedFiles> shown_;
    std::optional<LoadRun> load_;
    Boxes targets_;  // of this rank's destination
};

/// Calls f(run) with a reshard whose states are prepared. Collective over the rank's world.
template <class F>
auto with_reshard(Rank& rank, const ReshardSide& from, const ReshardSide& to, const ReshardOptions& options,
                  SourceLocation where, const F& f) {
    const auto call = [&] {
        RankWorld world(rank, "reshard");
        ReshardWire wire(rank);
        ReshardRun run(world, wire, options, where);
        run.prepare(from.state(), to.state());
        return f(run);
    };
    if (!options.deadline) { return call(); }
    const auto patient = rank.deadline(*options.deadline, where);
    return call();
}

}  // namespace shardkit::detail

namespace shardkit SHARDKIT_FACE {

SHARDKIT_CORE_INLINE ReshardPlan plan_reshard(Rank& rank, const ReshardSide& from, const ReshardSide& to,
                                              const ReshardOptions& options, SourceLocation where) {
    return detail::with_reshard(rank, from, to, options, where, [](detail::ReshardRun& run) { return run.plan(); });
}
SHARDKIT_CORE_INLINE ReshardReport reshard(Rank& rank, const ReshardPlan& plan, const ReshardSide& from,
                                           const ReshardSide& to, SourceLocation where) {
    return detail::with_reshard(rank, from, to, plan.options(), where, [&](detail::ReshardRun& run) {
        const detail::PlannedReshard& planned = plan.planned();
        run.require(planned);
        return run.move(planned.transfers, to.state());
    });
}
SHARDKIT_CORE_INLINE ReshardReport reshard(Rank& rank, const ReshardSide& from, const ReshardSide& to,
                                           const ReshardOptions& options, SourceLocation where) {
    return detail::with_reshard(rank, from, to, options, where, [&](detail::ReshardRun& run) {
        const ReshardPlan plan = run.plan();
        return run.move(plan.planned().transfers, to.state());
    });
}

}  // namespace SHARDKIT_FACE
