// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/optim/any_update.hpp>
#include <shardkit/optim/listed_group.hpp>
#include <shardkit/optim/update_runner.hpp>
#include <shardkit/optim/update_table.hpp>
#include <shardkit/rank/rank.hpp>

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// The updates of groups of any element types with a rule that is a value, on the host: one group behind the other.
class AnyLaunches final : public spi::UpdateRunner {
  public:
    void prepare(Rank& /*rank*/, const UpdateTable& /*table*/, const std::uint32_t* /*skip*/,
                 SourceLocation /*where*/) override {
        works_.clear();
    }
    void run_one(const TrainedGroup& each, Rank& rank, const UpdateTable& table, const std::uint32_t* skip) override {
        AnyUpdateWork work = work_at_rest(each, table.updates(), each.steps, skip);
        run_update(each, work, rank.compute_stream(), 0);
    }
    void run(Rank& rank, const UpdateTable& table, const std::uint32_t* skip, SourceLocation /*where*/) override {
        const Stream stream = rank.compute_stream();
        for (std::size_t i = 0; i < listed_.size(); ++i) {
            const TrainedGroup& each = listed_[i];
            if (works_.size() == i) { works_.push_back(work_at_rest(each, table.updates(), each.steps, skip)); }
            if (each.taken) { run_update(each, works_[i], stream, 0); }
        }
    }

  private:
    List<AnyUpdateWork> works_;  // of those listed, made in the first step
};

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
