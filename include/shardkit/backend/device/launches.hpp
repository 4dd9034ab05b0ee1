// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/backend/device/offloaded_updates.hpp>
#include <shardkit/backend/device/piece_updates.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/layout/flat_layout.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/optim/any_launches.hpp>
#include <shardkit/optim/device_optimizers.hpp>
#include <shardkit/optim/offload_pieces.hpp>
#include <shardkit/optim/update_batches.hpp>
#include <shardkit/optim/update_table.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/copy_captures.hpp>

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// The launches of groups as UpdateBatches say, of which each has groups of the same types; offloaded ones behind
/// them, piece by piece.
class BatchedLaunches final : public DeviceLaunches {
    void prepare(std::span<const TrainedGroup> listed, Rank& rank, const UpdateTable& table,
                 const std::uint32_t* skip) override {
        make_host_calls(listed, rank, table);
        batches_.plan(listed);
        make_table(listed, rank, table.updates(), skip);
    }
    void run_one(const TrainedGroup& each, Rank& rank, const UpdateTable& table, const std::uint32_t* skip) override {
        if (!each.group->pieces().empty()) {
            return run_offloaded(std::span<const TrainedGroup>(&each, 1), rank, table, skip);
        }
        const Stream stream = rank.compute_stream();
        AnyUpdateWork work = work_at_rest(each, table.updates(), each.steps, skip);
        run_update(each, work, stream, stream.capture());
    }
    void run(std::span<const TrainedGroup> listed, Rank& rank, const UpdateTable& table,
             const std::uint32_t* skip) override {
        const Stream stream = rank.compute_stream();
        batches_.run(listed, stream, stream.capture(), [&](std::size_t begin, std::size_t end) {
            run_entries(listed, stream, begin, end, table.updates(), skip);
        });
        run_offloaded(listed, rank, table, skip);
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
    void make_table(std::span<const TrainedGroup> listed, Rank& rank, const AnyRuleUpdate* updates,
                    const std::uint32_t* skip) {
        List<std::byte> table;
        entries_.clear();
        for (const UpdateBatches::Batch& batch : batches_.batches()) {
            DeviceUpdates::Entry entry;
            table.resize(round_up(table.size(), alignof(std::max_align_t)));
            for (std::size_t i = batch.begin; i < batch.end; ++i) {
                const AnyUpdateWork update = work_in_step(listed[batches_.order()[i]], updates, skip);
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
    void run_entries(std::span<const TrainedGroup> listed, const Stream& stream, std::size_t begin, std::size_t end,
                     const AnyRuleUpdate* updates, const std::uint32_t* skip) {
        const AnyUpdateWork update = work_in_step(listed[batches_.order()[begin]], updates, skip);
        if (end - begin == 1) { return update.give(stream); }
        const std::size_t at = entries_[begin].bytes.begin;
        give(stream,
             {.work = &update,
              .entries = {{static_cast<const std::byte*>(table_.data()) + at, entries_[end - 1].bytes.end - at},
                          entries_[begin].begin,
                          entries_[end - 1].end}});
    }

    UpdateBatches batches_;
    List<Entry> entries_;
    EngineBytes table_;
};

inline DeviceLaunches* new_batched_launches() { return new BatchedLaunches; }
inline constexpr DeviceOptimizers batched_optimizers{&new_batched_launches, &make_offload_slots, &cut_at_pieces};
inline const bool has_device_optimizers = ((device_optimizers = &batched_optimizers), true);

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
