// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include <shardkit/compiled/core_model.hpp>
#include <shardkit/compiled/schedule_interface.hpp>
#include <shardkit/follow/follow.hpp>
#include <shardkit/follow/record.hpp>

// Defines the classes of schedule_interface.hpp for one engine.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

template <class EngineType>
class SchedulesOf final : public Schedules {
  public:
    using Engine = EngineType;

    Recording* begin_record(const Groups& groups, SourceLocation where) const override {
        struct Made final : Recording {
            Made(const shardkit::Groups<Engine>& model, SourceLocation at)
                : Recording(engine_core<Engine>()), core(model, at) {}
            Schedule schedule(SourceLocation at) override { return core.schedule(at); }
            shardkit::detail::Recording<Engine> core;
        };
        return new Made(on<const GroupsOf<Engine>>(groups, where).core, where);
    }
    Following* follow(const Groups& groups, std::span<const Schedule> schedules,
                      SourceLocation where) const override {
        struct Made final : Following {
            explicit Made(schedule::Following<Engine> following)
                : Following(engine_core<Engine>()), core(std::move(following)) {}
            ByteCount arena_bytes(SourceLocation at) const override { return core.arena_bytes(at); }
            std::size_t schedules(SourceLocation at) const override { return core.schedules(at); }
            std::size_t choose(std::size_t schedule, SourceLocation at) override { return core.choose(schedule, at); }
            void measure(SourceLocation at) override {
                if constexpr (is_timed) { return core.measure(at); }
                refuse_measure(at);
            }
            schedule::MeasuredStep measured(SourceLocation at) const override {
                if constexpr (is_timed) { return core.measured(at); }
                refuse_measure(at);
            }
            schedule::Following<Engine> core;
        };
        return new Made(schedule::follow(on<const GroupsOf<Engine>>(groups, where).core, schedules, where));
    }

  private:
    static constexpr bool is_timed = shardkit::detail::TimedByHost<typename Engine::Stream>;
    [[noreturn]] static void refuse_measure(SourceLocation where) {
        throw_usage_error(where, "a followed step is measured by the host's clock, which the streams of the engine ",
                          engine_core<Engine>().name, " do not wait for; expected self, threads or mpi");
    }
};

}  // namespace SHARDKIT_CHECKED_BUILD
