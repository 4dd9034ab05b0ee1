// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/device_optimizers.hpp>
#include <shardkit/optim/listed_group.hpp>
#include <shardkit/optim/update_runner.hpp>
#include <shardkit/optim/update_table.hpp>
#include <shardkit/rank/rank.hpp>

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// The launches of groups on a device.
class DeviceLaunches {
  public:
    virtual ~DeviceLaunches() = default;
    virtual void prepare(std::span<const TrainedGroup> listed, Rank& rank, const UpdateTable& table,
                         const std::uint32_t* skip) = 0;
    virtual void run_one(const TrainedGroup& each, Rank& rank, const UpdateTable& table,
                         const std::uint32_t* skip) = 0;
    virtual void run(std::span<const TrainedGroup> listed, Rank& rank, const UpdateTable& table,
                     const std::uint32_t* skip) = 0;
};

/// The updates of groups of any element types with a rule that is a value: on the host one group behind the other, on
/// a device as DeviceLaunches say.
class AnyLaunches final : public spi::UpdateRunner {
  public:
    /// @throws UsageError for a group whose updates no file of the program launches on the device that has it
    void prepare(Rank& rank, const UpdateTable& table, const std::uint32_t* skip, SourceLocation where) override {
        works_.clear();
        if (host_reads(rank.compute_stream())) { return; }
        for (const TrainedGroup& each : listed_) {
            const AnyUpdateWork update = work_at_rest(each, table.updates(), each.steps, skip);
            const bool launches = !each.group->offloaded().host_ranges.empty() || update.launches();
            require_launch(rank.compute_stream(), update, launches, each.state->path(), where);
        }
        if (device_ == nullptr) { device_.reset(on_device(where).make_launches()); }
        device_->prepare(listed_.span(), rank, table, skip);
    }
    void run_one(const TrainedGroup& each, Rank& rank, const UpdateTable& table, const std::uint32_t* skip) override {
        if (device_ != nullptr) { return device_->run_one(each, rank, table, skip); }
        AnyUpdateWork work = work_at_rest(each, table.updates(), each.steps, skip);
        run_update(each, work, rank.compute_stream(), 0);
    }
    void run(Rank& rank, const UpdateTable& table, const std::uint32_t* skip, SourceLocation /*where*/) override {
        if (device_ != nullptr) { return device_->run(listed_.span(), rank, table, skip); }
        const Stream stream = rank.compute_stream();
        for (std::size_t i = 0; i < listed_.size(); ++i) {
            const TrainedGroup& each = listed_[i];
            if (works_.size() == i) { works_.push_back(work_at_rest(each, table.updates(), each.steps, skip)); }
            if (each.taken) { run_update(each, works_[i], stream, 0); }
        }
    }

  private:
    List<AnyUpdateWork> works_;               // of those listed, made in the first step on the host
    std::unique_ptr<DeviceLaunches> device_;  // null on the host
};

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
