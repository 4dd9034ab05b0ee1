// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include <shardkit/compiled/core.hpp>
#include <shardkit/compiled/schedule_interface.hpp>
#include <shardkit/follow/follow.hpp>
#include <shardkit/follow/record.hpp>

// Defines the functions of schedule_interface.hpp.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

Recording* begin_record(const Model& groups, SourceLocation where) {
    struct Made final : Recording {
        Made(const shardkit::Model& model, SourceLocation at) : core(model, at) {}
        Schedule schedule(SourceLocation at) override { return core.schedule(at); }
        shardkit::detail::Recording core;
    };
    return new Made(groups, where);
}
Following* follow(const Model& groups, std::span<const Schedule> schedules, SourceLocation where) {
    struct Made final : Following {
        explicit Made(schedule::Following following) : core(std::move(following)) {}
        ByteCount arena_bytes(SourceLocation at) const override { return core.arena_bytes(at); }
        std::size_t schedules(SourceLocation at) const override { return core.schedules(at); }
        std::size_t choose(std::size_t schedule, SourceLocation at) override { return core.choose(schedule, at); }
        void measure(SourceLocation at) override { core.measure(at); }
        schedule::MeasuredStep measured(SourceLocation at) const override { return core.measured(at); }
        schedule::Following core;
    };
    return new Made(schedule::follow(groups, schedules, where));
}

}  // namespace SHARDKIT_CHECKED_BUILD
