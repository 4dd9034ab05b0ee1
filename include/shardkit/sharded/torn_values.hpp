// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iterator>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/layout/placed_parameter.hpp>

namespace shardkit::detail {

/// The values of one group that are half written: a write of them began and did not end, as when it throws half way,
/// or a step updated them and not those of other groups. They mix two states, differently on each rank. Training and
/// windows refuse them until they are written again.
class TornValues {
  public:
    /// The kind of values that means parameters and their master weights; other kinds are optimizer states.
    static constexpr std::string_view parameters = "parameter";

    /// The verb of a step that updates groups in its backward pass, and ended before it was closed.
    static constexpr std::string_view step = "step in backward";

    bool empty() const noexcept { return torn_.empty(); }

    /// Marks values of that kind as half written, by `verb`, called at `where`.
    [[gnu::cold]] void begin(std::size_t parameter, std::string_view kind, std::string_view verb,
                             SourceLocation where) {
        if (!torn_.emplace(parameter, kind).second) { return; }  // part of a write that has begun already
        verb_ = verb;
        where_ = where;
    }
    /// Marks these values as completely written.
    void end(std::size_t parameter, std::string_view kind) noexcept { torn_.erase({parameter, kind}); }
    /// Forgets the half-written optimizer states of a parameter, as a new optimizer has states of its own for it.
    void end_states(std::size_t parameter) noexcept {
        for (auto each = torn_.lower_bound({parameter, {}}); each != torn_.end() && each->first == parameter;) {
            each = each->second == parameters ? std::next(each) : torn_.erase(each);
        }
    }
    /// @throws UsageError, which names `verb` and the write that has not ended, where values are half written
    void require_whole(std::string_view path, std::span<const PlacedParameter> of, std::string_view verb,
                       SourceLocation where) const {
        if (empty()) [[likely]] { return; }
        const auto& [parameter, kind] = *torn_.begin();
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
    std::set<std::pair<std::size_t, std::string_view>> torn_;  // parameters and kinds
    std::string_view verb_;
    SourceLocation where_{};
};
}  // namespace shardkit::detail
