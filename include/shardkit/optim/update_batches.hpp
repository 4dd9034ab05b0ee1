// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/detail/list.hpp>
#include <shardkit/rank/launches.hpp>

namespace shardkit::detail {

/// Parameters of one launch, in bytes, from which on more groups go to another launch: enough to keep a device busy,
/// and few enough that the next gathers begin while others are still updated.
inline constexpr std::size_t update_batch_bytes = std::size_t{32} << 20U;

/// Which of an optimizer's groups share a launch: those below update_batch_bytes are taken together in launches of
/// about that size, in the model's order and of the same element types, each larger one has a launch of its own.
class UpdateBatches {
  public:
    /// Some of the table's entries.
    struct Batch {
        std::size_t begin;
        std::size_t end;
    };

    /// Plans for the groups that are listed.
    template <class Listed>
    void plan(std::span<const Listed> listed) {
        order_.clear();
        batches_.clear();
        List<Open> open;
        for (std::size_t i = 0; i < listed.size(); ++i) {
            auto& state = *listed[i].state;
            // Updated one by one.
            if (state.geometry().table.releases || !listed[i].group->pieces().empty()) { continue; }
            const bool keeps_master = state.geometry().keeps_master();
            const auto& parameters = state.parameters();
            const std::size_t bytes =
                (keeps_master ? parameters.master() : parameters.gather_source()).bytes().size();
            Open alone;
            Open& its = bytes < update_batch_bytes ? of(open, {&state.elements(), keeps_master}) : alone;
            its.groups.push_back(i);
            its.bytes += bytes;
            if (its.bytes >= update_batch_bytes) { close(its); }
        }
        for (Open& each : open) { close(each); }
    }
    std::span<const Batch> batches() const noexcept { return batches_.span(); }
    /// The listed groups of the table's entries.
    std::span<const std::size_t> order() const noexcept { return order_; }

    /// Calls launch(begin, end) for each run of entries whose groups take part in a step.
    template <class Listed, class Stream, class Launch>
    void run(std::span<const Listed> listed, const Stream& stream, unsigned long long capture,
             const Launch& launch) const {
        const auto is_taken = [&](std::size_t i) { return listed[order_[i]].taken; };
        for (const Batch& batch : batches_) {
            for (std::size_t i = batch.begin; i < batch.end; ++i) {
                if (is_taken(i)) { listed[order_[i]].state->gradients().wait(); }
            }
            for_each_run(batch.begin, batch.end, is_taken, launch);
            const auto updated = stream.record();
            for (std::size_t i = batch.begin; i < batch.end; ++i) {
                if (is_taken(i)) { listed[order_[i]].state->parameters().end_update(updated, capture); }
            }
        }
    }

  private:
    /// What groups must share to share a launch.
    struct Kind {
        const void* elements = nullptr;
        bool keeps_master = false;

        friend bool operator==(const Kind&, const Kind&) = default;
    };
    struct Open {
        Kind kind{};
        std::vector<std::size_t> groups{};
        std::size_t bytes = 0;
    };
    static Open& of(List<Open>& open, const Kind& kind) {
        for (Open& each : open) {
            if (each.kind == kind) { return each; }
        }
        return open.push_back({kind});
    }
    void close(Open& open) {
        if (open.groups.empty()) { return; }
        batches_.push_back({order_.size(), order_.size() + open.groups.size()});
        order_.insert(order_.end(), open.groups.begin(), open.groups.end());
        open.groups.clear();
        open.bytes = 0;
    }

    std::vector<std::size_t> order_;
    List<Batch> batches_;
};

}  // namespace shardkit::detail
