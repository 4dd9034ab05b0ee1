// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <utility>

#include <shardkit/compiled/plan.hpp>
#include <shardkit/compiled/schedule_interface.hpp>

// What follow/follow.hpp and follow/record.hpp are in the compiled form.

namespace shardkit::schedule SHARDKIT_BUILD {

/// A model whose steps follow a schedule while this object lives: see follow/follow.hpp.
class Following {
  public:
    explicit Following(compiled::Following* made) noexcept : following_(made) {}

    ByteCount arena_bytes(SourceLocation where = SourceLocation::current()) const {
        return core(where).arena_bytes(where);
    }
    std::size_t schedules(SourceLocation where = SourceLocation::current()) const {
        return core(where).schedules(where);
    }
    std::size_t choose(std::size_t schedule, SourceLocation where = SourceLocation::current()) {
        return core(where).choose(schedule, where);
    }
    void measure(SourceLocation where = SourceLocation::current()) { core(where).measure(where); }
    MeasuredStep measured(SourceLocation where = SourceLocation::current()) const {
        return core(where).measured(where);
    }

  private:
    compiled::Following& core(SourceLocation where) const {
        if (following_.get() == nullptr) {
            detail::refuse_use(where, "a Following was used after it was moved from");
        }
        return *following_;
    }

    compiled::Handle<compiled::Following> following_;
};

/// Lets the steps of a model follow a schedule: see follow/follow.hpp.
[[nodiscard]] inline Following follow(const Model& model, std::span<const Schedule> schedules,
                                      SourceLocation where = SourceLocation::current()) {
    return Following(compiled::follow(model, schedules, where));
}
[[nodiscard]] inline Following follow(const Model& model, const Schedule& schedule,
                                      SourceLocation where = SourceLocation::current()) {
    return follow(model, std::span<const Schedule>(&schedule, 1), where);
}
[[nodiscard]] inline Following follow(const Model& model, std::initializer_list<Schedule> schedules,
                                      SourceLocation where = SourceLocation::current()) {
    return follow(model, std::span<const Schedule>(schedules.begin(), schedules.size()), where);
}

/// Returns the schedule of the step that `step()` runs: see follow/record.hpp.
template <class F>
Schedule record(const Model& model, F&& step, SourceLocation where = SourceLocation::current()) {
    const compiled::Handle<compiled::Recording> recording(compiled::begin_record(model, where));
    std::forward<F>(step)();
    return recording->schedule(where);
}

}  // namespace SHARDKIT_BUILD
