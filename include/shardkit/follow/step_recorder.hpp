// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cstddef>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/follow/record.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/schedule/check.hpp>
#include <shardkit/schedule/dry_step.hpp>
#include <shardkit/schedule/schedule.hpp>
#include <shardkit/spi/step_observer.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::detail {

/// Records a step as a schedule.
class StepRecorder final : public spi::StepObserver {
  public:
    explicit StepRecorder(std::vector<GroupDescription> groups)
        : groups_(std::move(groups)), step_(groups_, until_reduced) {}

    void begin_step(std::size_t groups, SourceLocation where) override {
        if (groups != groups_.size()) {
            throw_usage_error(where, "record: a step over ", groups, " groups of a model of ", groups_.size());
        }
        if (steps_++ > 0) { throw_usage_error(where, "record: a second step begins, expected one"); }
        set_in_step(true);
    }
    void open(std::size_t group, SourceLocation /*where*/) override { step_.begin_unshard(group); }
    void before(Act act, std::size_t group, SourceLocation /*where*/) override {
        if (act == Act::norm) {
            step_.global_norm();
        } else if (act == Act::add) {
            step_.add(group);
        } else {
            step_.make(act, group);
        }
    }
    BatchAct batch(BatchAct due, SourceLocation /*where*/) override {
        step_.batch(due.act, due.batch);
        return due;
    }
    void finish(std::size_t group, SourceLocation /*where*/, std::string_view /*verb*/) override {
        step_.finish(group);
    }
    void closed(std::size_t group) noexcept override {
        try {
            step_.reshard(group);
        } catch (...) { failure_ = std::current_exception(); }
    }

    /// @throws UsageError when no step ran, or one has not ended; std::invalid_argument when it breaks a rule
    Schedule schedule(SourceLocation where) const {
        if (failure_) { std::rethrow_exception(failure_); }
        if (in_step()) {
            throw_usage_error(where,
                              "record: the step has not ended, expected its gradients to be consumed by an "
                              "optimizer's step, or dropped, before what is recorded returns");
        }
        if (steps_ == 0) { throw_usage_error(where, "record: no step ran, expected one over this model"); }
        Schedule recorded = step_.schedule();
        schedule::require_valid(recorded, groups_, where);
        return recorded;
    }

  private:
    std::vector<GroupDescription> groups_;
    schedule::DryStep step_;
    std::size_t steps_ = 0;
    std::exception_ptr failure_;
};

}  // namespace shardkit::detail

namespace shardkit::detail SHARDKIT_FACE {
SHARDKIT_CORE_INLINE Schedule record(const Model& model, void (*step)(void*), void* of, SourceLocation where) {
    StepRecorder recorder(describe_groups(model, where));
    spi::Observation observation(model, recorder, where);
    step(of);
    observation.end();
    return recorder.schedule(where);
}
}  // namespace shardkit::detail SHARDKIT_FACE
