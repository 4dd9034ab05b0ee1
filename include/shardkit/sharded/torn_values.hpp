// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/layout/placed_parameter.hpp>

namespace shardkit::detail {

/// The values of one group that are half written: a write of them began and did not end, as when it throws half way,
/// or a step updated them and not those of other groups. They mix two states, differently on each rank. Training and
/// windows refuse them until they are written again. It is a template, so that a file compiles only the members that
/// it uses.
template <class>
class BasicTornValues {
  public:
    /// The kind of values that means parameters and their master weights; other kinds are optimizer states.
    static constexpr std::string_view parameters = "parameter";

    /// The verb of a step that updates groups in its backward pass, and ended before it was closed.
    static constexpr std::string_view step = "step in backward";

    bool empty() const noexcept { return torn_.empty(); }
    /// Marks values of that kind as half written, by `verb`, called at `where`.
    void begin(std::size_t parameter, std::string_view kind, std::string_view verb, SourceLocation where) {
        const Values values{parameter, kind};
        for (std::size_t i = torn_.size(); i > 0; --i) {
            if (torn_[i - 1] == values) { return; }  // part of a write that has begun already
        }
        torn_.push_back(values);
        verb_ = verb;
        where_ = where;
    }
    /// Marks these values as completely written.
    void end(std::size_t parameter, std::string_view kind) noexcept {
        const Values ended{parameter, kind};
        for (std::size_t i = torn_.size(); i > 0; --i) {
            if (torn_[i - 1] != ended) { continue; }
            torn_[i - 1] = torn_.back();
            return torn_.pop_back();
        }
    }
    /// Forgets the half-written optimizer states of a parameter, as a new optimizer has states of its own for it.
    void end_states(std::size_t parameter) noexcept {
        torn_.erase_if(
            [parameter](const Values& values) { return values.parameter == parameter && values.kind != parameters; });
    }
    /// @throws UsageError, which names `verb` and the write that has not ended, where values are half written
    void require_whole(std::string_view path, std::span<const PlacedParameter> of, std::string_view verb,
                       SourceLocation where) const {
        if (empty()) [[likely]] { return; }
        Values first = torn_.front();
        for (const Values& each : torn_) { first = each < first ? each : first; }
        const auto [parameter, kind] = first;
        if (verb_ == step) {
            throw_usage_error(where, "'", path, "': ", verb, ", but the ", verb_, " that began at ", where_.file, ":",
                              where_.line, " has updated '", of[parameter].name,
                              "' and ended before optimizer.step closed it, so that groups are of different steps; "
                              "expected a load of parameters and optimizer states before");
        }
        throw_usage_error(where, "'", path, "': ", verb, ", but the ", verb_, " at ", where_.file, ":", where_.line,
                          " ended with an error before '", of[parameter].name, "' had its ", kind,
                          torn_.size() > 1 ? " and others theirs" : "",
                          "; expected a load, or an initialize of the whole group and, after one of states, a new "
                          "optimizer, that succeeds before");
    }

  private:
    struct Values {
        std::size_t parameter;
        std::string_view kind;

        bool operator==(const Values&) const noexcept = default;
        bool operator<(const Values& other) const noexcept {
            return parameter != other.parameter ? parameter < other.parameter : kind < other.kind;
        }
    };

    List<Values> torn_;
    std::string_view verb_;
    SourceLocation where_{};
};
using TornValues = BasicTornValues<void>;

}  // namespace shardkit::detail
