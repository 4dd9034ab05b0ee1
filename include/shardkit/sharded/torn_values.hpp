// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
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

    bool empty() const noexcept { return count_ == 0; }
    /// Marks values of that kind as half written, by `verb`, called at `where`.
    void begin(std::size_t parameter, std::string_view kind, std::string_view verb, SourceLocation where) {
        List<char>& torn = of_kind(kind).torn;
        while (torn.size() <= parameter) { torn.push_back(0); }
        if (torn[parameter] != 0) { return; }  // part of a write that has begun already
        torn[parameter] = 1;
        ++count_;
        verb_ = verb;
        where_ = where;
    }
    /// Marks these values as completely written.
    void end(std::size_t parameter, std::string_view kind) noexcept {
        for (Kind& each : kinds_) {
            if (each.kind == kind) { end(each, parameter); }
        }
    }
    /// Forgets the half-written optimizer states of a parameter, as a new optimizer has states of its own for it.
    void end_states(std::size_t parameter) noexcept {
        for (Kind& each : kinds_) {
            if (each.kind != parameters) { end(each, parameter); }
        }
    }
    /// @throws UsageError, which names `verb` and the write that has not ended, where values are half written
    void require_whole(std::string_view path, std::span<const PlacedParameter> of, std::string_view verb,
                       SourceLocation where) const {
        if (empty()) [[likely]] { return; }
        std::size_t parameter = of.size();
        std::string_view kind;
        for (const Kind& each : kinds_) {
            const std::size_t first = each.first();
            if (first < parameter || (first == parameter && each.kind < kind)) {
                parameter = first;
                kind = each.kind;
            }
        }
        if (verb_ == step) {
            throw_usage_error(where, "'", path, "': ", verb, ", but the ", verb_, " that began at ", where_.file, ":",
                              where_.line, " has updated '", of[parameter].name,
                              "' and ended before optimizer.step closed it, so that groups are of different steps; "
                              "expected a load of parameters and optimizer states before");
        }
        throw_usage_error(where, "'", path, "': ", verb, ", but the ", verb_, " at ", where_.file, ":", where_.line,
                          " ended with an error before '", of[parameter].name, "' had its ", kind,
                          count_ > 1 ? " and others theirs" : "",
                          "; expected a load, or an initialize of the whole group and, after one of states, a new "
                          "optimizer, that succeeds before");
    }

  private:
    /// Which parameters have half-written values of a kind.
    struct Kind {
        std::string_view kind;
        List<char> torn;  // as long as the last of them needs

        std::size_t first() const noexcept {
            std::size_t parameter = 0;
            while (parameter < torn.size() && torn[parameter] == 0) { ++parameter; }
            return parameter < torn.size() ? parameter : SIZE_MAX;
        }
    };
    Kind& of_kind(std::string_view kind) {
        for (Kind& each : kinds_) {
            if (each.kind == kind) { return each; }
        }
        return kinds_.push_back(Kind{kind, {}});
    }
    void end(Kind& kind, std::size_t parameter) noexcept {
        if (parameter >= kind.torn.size() || kind.torn[parameter] == 0) { return; }
        kind.torn[parameter] = 0;
        --count_;
    }

    List<Kind> kinds_;  // few: the parameters, and the states of an optimizer
    std::size_t count_ = 0;
    std::string_view verb_;
    SourceLocation where_{};
};
using TornValues = BasicTornValues<void>;

}  // namespace shardkit::detail
