// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <shardkit/backend/device/offloaded_updates.hpp>
#include <shardkit/backend/device/piece_updates.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/range.hpp>
#include <shardkit/layout/flat_layout.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/optim/any_update.hpp>
#include <shardkit/optim/device_optimizers.hpp>
#include <shardkit/optim/listed_group.hpp>
#include <shardkit/optim/offload_pieces.hpp>
#include <shardkit/optim/update_runner.hpp>
#include <shardkit/optim/update_table.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/group_geometry.hpp>

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// Parameters of one launch, in bytes, from which on more groups go to another launch: enough to keep a device busy,
/// and few enough that the next gathers begin while others are still updated.
inline constexpr std::size_t update_batch_bytes = std::size_t{32} << 20U;

/// The launches of groups on a device: those below update_batch_bytes are taken together in launches of about that
/// size, in the model's order and of the same element types, each larger one has a launch of its own; offloaded ones
/// behind them, piece by piece.
class BatchedLaunches final : public spi::UpdateRunner {
    /// @throws UsageError for a group whose updates no file of the program launches
    void prepare(Rank& rank, const UpdateTable& table, const std::uint32_t* skip, SourceLocation where) override {
        for (const TrainedGroup& each : listed_) {
            const AnyUpdateWork update = work_at_rest(each, table.updates(), each.steps, skip);
            const bool launches = !each.group->offloaded().host_ranges.empty() || update.launches();
            require_launch(rank.compute_stream(), update, launches, each.state->path(), where);
        }
        make_host_calls(listed_.span(), rank, table);
        plan();
        make_table(rank, table.updates(), skip);
    }
    void run_one(const TrainedGroup& each, Rank& rank, const UpdateTable& table, const std::uint32_t* skip) override {
        if (!each.group->pieces().empty()) {
            return run_offloaded(std::span<const TrainedGroup>(&each, 1), rank, table, skip);
        }
        const Stream stream = rank.compute_stream();
        AnyUpdateWork work = work_at_rest(each, table.updates(), each.steps, skip);
        run_update(each, work, stream, stream.capture());
    }
    void run(Rank& rank, const UpdateTable& table, const std::uint32_t* skip, SourceLocation /*where*/) override {
        const Stream stream = rank.compute_stream();
        const auto is_taken = [&](std::size_t i) { return listed_[order_[i]].taken; };
        for (const IndexRange& batch : batches_) {
            for (std::size_t i = batch.begin; i < batch.end; ++i) {
                if (is_taken(i)) { listed_[order_[i]].state->gradients().wait(); }
            }
            for_each_run(batch.begin, batch.end, is_taken, [&](std::size_t begin, std::size_t end) {
                run_entries(stream, begin, end, table.updates(), skip);
            });
            const auto updated = stream.record();
            for (std::size_t i = batch.begin; i < batch.end; ++i) {
                if (is_taken(i)) { listed_[order_[i]].state->parameters().end_update(updated, stream.capture()); }
            }
        }
        run_offloaded(listed_.span(), rank, table, skip);
    }

    /// Decides which of the listed groups share a launch.
    void plan() {
        struct Open {
            const void* elements;
            bool keeps_master;
            List<std::size_t> groups{};
            std::size_t bytes = 0;
        };
        order_.clear();
        batches_.clear();
        List<Open> open;
        const auto close = [&](Open& batch) {
            if (!batch.groups.empty()) { batches_.push_back({order_.size(), order_.size() + batch.groups.size()}); }
            order_.append(batch.groups.begin(), batch.groups.end());
            batch.groups.clear();
            batch.bytes = 0;
        };
        for (std::size_t i = 0; i < listed_.size(); ++i) {
            auto& state = *listed_[i].state;
            // Updated one by one.
            if (state.geometry().table.releases || !listed_[i].group->pieces().empty()) { continue; }
            const bool keeps_master = state.geometry().keeps_master();
            const auto& parameters = state.parameters();
            Open alone{&state.elements(), keeps_master};
            const std::size_t bytes =
                (keeps_master ? parameters.master() : parameters.gather_source()).bytes().size();
            Open* its = &alone;
            if (bytes < update_batch_bytes) {
                its = std::find_if(open.begin(), open.end(), [&](const Open& each) {
                    return each.elements == alone.elements && each.keeps_master == keeps_master;
                });
                if (its == open.end()) { its = &open.push_back(std::move(alone)); }
            }
            its->groups.push_back(i);
            its->bytes += bytes;
            if (its->bytes >= update_batch_bytes) { close(*its); }
        }
        for (Open& each : open) { close(each); }
    }

    /// A group's entry of the table: its bytes, and its share of a launch's works.
    struct Entry {
        IndexRange bytes;
        std::uint64_t begin;
        std::uint64_t end;
    };

    static void give(const Stream& stream, const DeviceUpdates& updates) {
        updates.work->rule->give(stream, updates);
    }
    void make_table(Rank& rank, const AnyRuleUpdate* updates, const std::uint32_t* skip) {
        List<std::byte> table;
        entries_.clear();
        for (const IndexRange& batch : batches_) {
            DeviceUpdates::Entry entry;
            table.resize(round_up(table.size(), alignof(std::max_align_t)));
            for (std::size_t i = batch.begin; i < batch.end; ++i) {
                const AnyUpdateWork update = work_in_step(listed_[order_[i]], updates, skip);
                const std::uint64_t begin = entry.end;
                entry.bytes.clear();
                give(rank.compute_stream(), {.work = &update, .entry = &entry});
                entries_.push_back({{table.size(), table.size() + entry.bytes.size()}, begin, entry.end});
                table.append(entry.bytes.begin(), entry.bytes.end());
            }
        }
        table_ = EngineBytes(rank, table.size());
        table_.write(table.data(), 0, table.size());
    }
    void run_entries(const Stream& stream, std::size_t begin, std::size_t end, const AnyRuleUpdate* updates,
                     const std::uint32_t* skip) {
        const AnyUpdateWork update = work_in_step(listed_[order_[begin]], updates, skip);
        if (end - begin == 1) { return update.give(stream); }
        const std::size_t at = entries_[begin].bytes.begin;
        give(stream,
             {.work = &update,
              .entries = {{static_cast<const std::byte*>(table_.data()) + at, entries_[end - 1].bytes.end - at},
                          entries_[begin].begin,
                          entries_[end - 1].end}});
    }

    List<std::size_t> order_;   // the listed groups of the table's entries
    List<IndexRange> batches_;  // entries that share a launch
    List<Entry> entries_;
    EngineBytes table_;
};

inline spi::UpdateRunner* new_batched_launches() { return new BatchedLaunches; }
inline constexpr DeviceOptimizers batched_optimizers{&new_batched_launches, &make_offload_slots, &cut_at_pieces};
inline const bool has_device_optimizers = ((device_optimizers = &batched_optimizers), true);

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
