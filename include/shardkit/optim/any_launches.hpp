// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/layout/flat_layout.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/listed_group.hpp>
#include <shardkit/optim/piece_updates.hpp>
#include <shardkit/optim/update_batches.hpp>
#include <shardkit/optim/update_table.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/copy_captures.hpp>
#include <shardkit/sharded/group.hpp>

namespace shardkit::detail SHARDKIT_BUILD {

/// The updates of groups of any element types with a rule that is a value: on the host one group behind the other, on
/// a device as UpdateBatches say, of which each has groups of the same types.
class AnyLaunches {
  public:
    using Table = UpdateTable<AnyRule, float>;
    using Listed = TrainedGroup<AnyRule>;

    void start() noexcept { listed_.clear(); }
    void list(const Listed& each) { listed_.push_back(each); }
    /// @throws UsageError for a group whose updates no file of the program launches on the device that has it
    void prepare(Rank& rank, const Table& table, const std::uint32_t* skip, SourceLocation where) {
        if (host_reads(rank.compute_stream())) { return; }
        for (const Listed& each : listed_) {
            const AnyUpdateWork update = work_at_rest(each, table.updates(), each.steps, skip);
            const bool launches = !each.group->offloaded().host_ranges.empty() || update.launches();
            require_launch(rank.compute_stream(), update, launches, each.state->path(), where);
        }
        make_host_calls(listed_.span(), rank, table);
        batches_.plan(listed_.span());
        make_table(rank, table.updates(), skip);
    }
    void run_one(const Listed& each, Rank& rank, const Table& table, const std::uint32_t* skip) {
        const Stream stream = rank.compute_stream();
        if (!each.group->pieces().empty()) {
            return run_offloaded(std::span<const Listed>(&each, 1), rank, table, skip);
        }
        run(each, stream, stream.capture(), table, skip);
    }
    void run(Rank& rank, const Table& table, const std::uint32_t* skip, SourceLocation /*where*/) {
        const Stream stream = rank.compute_stream();
        const auto capture = stream.capture();
        if (stream.on_device()) {
            batches_.run(listed_.span(), stream, capture, [&](std::size_t begin, std::size_t end) {
                run_entries(stream, begin, end, table.updates(), skip);
            });
            return run_offloaded(listed_.span(), rank, table, skip);
        }
        for (const Listed& each : listed_) {
            if (each.taken) { run(each, stream, capture, table, skip); }
        }
    }

  private:
    /// A group's entry of the table: its bytes, and its share of a launch's works.
    struct Entry {
        IndexRange bytes;
        std::uint64_t begin;
        std::uint64_t end;
    };

    static void run(const Listed& each, const Stream& stream, unsigned long long capture, const Table& table,
                    const std::uint32_t* skip) {
        each.state->gradients().wait();
        run_alone(each, stream, table.updates(), skip);
        each.state->parameters().end_update(stream.record(), capture);
    }
    static void run_alone(const Listed& each, const Stream& stream, const AnyRuleUpdate* updates,
                          const std::uint32_t* skip) {
        work_in_step(each, updates, skip).give(stream);
    }
    static void give(const Stream& stream, const DeviceUpdates& updates) {
        updates.work->rule->give(stream, updates);
    }
    void make_table(Rank& rank, const AnyRuleUpdate* updates, const std::uint32_t* skip) {
        List<std::byte> table;
        entries_.clear();
        for (const UpdateBatches::Batch& batch : batches_.batches()) {
            DeviceUpdates::Entry entry;
            table.resize(round_up(table.size(), alignof(std::max_align_t)));
            for (std::size_t i = batch.begin; i < batch.end; ++i) {
                const AnyUpdateWork update = work_in_step(listed_[batches_.order()[i]], updates, skip);
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
        const Listed& first = listed_[batches_.order()[begin]];
        if (end - begin == 1) { return run_alone(first, stream, updates, skip); }
        const AnyUpdateWork update = work_in_step(first, updates, skip);
        const std::size_t at = entries_[begin].bytes.begin;
        give(stream,
             {.work = &update,
              .entries = {{static_cast<const std::byte*>(table_.data()) + at, entries_[end - 1].bytes.end - at},
                          entries_[begin].begin,
                          entries_[end - 1].end}});
    }

    List<Listed> listed_;
    UpdateBatches batches_;
    List<Entry> entries_;
    EngineBytes table_;
};

}  // namespace shardkit::detail SHARDKIT_BUILD
