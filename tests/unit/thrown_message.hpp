// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include <shardkit/core/error.hpp>

/// What `f` throws as an E, or a text that no test expects when it throws nothing or something else.
template <class E, class F>
std::string thrown_message(F&& f) {
    try {
        f();
    } catch (const E& error) { return error.what(); } catch (const std::exception& error) {
        return std::string("another exception: ") + error.what();
    }
    return "nothing was thrown";
}

inline bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// `text` as an error says it that names `where`.
inline std::string text_at(std::string_view text, shardkit::SourceLocation where) {
    return std::string(text) + " (" + where.file + ":" + std::to_string(where.line) + ")";
}

/// That `f` throws a UsageError that says `text` and `where`, the user's file and line.
template <class F>
void check_usage_error(std::string_view text, shardkit::SourceLocation where, F&& f) {
    const std::string message = thrown_message<shardkit::UsageError>([&] {
        try {
            f();
        } catch (const shardkit::UsageError& error) {
            CHECK(std::string(error.where().file) == where.file);
            CHECK(error.where().line == where.line);
            throw;
        }
    });
    CHECK(message == text_at(text, where));
}

/// That this call throws a std::invalid_argument that says `text` and this file and line.
#define CHECK_INVALID_ARGUMENT(expression, text)                                           \
    CHECK(thrown_message<std::invalid_argument>([&] { static_cast<void>(expression); }) == \
          text_at(text, shardkit::SourceLocation::current()))
/// That this call throws a UsageError that says `text` and this file and line.
#define CHECK_USAGE_ERROR(expression, text) \
    check_usage_error(text, shardkit::SourceLocation::current(), [&] { static_cast<void>(expression); })
/// The same with the file and line of the call that gave the misused object.
#define CHECK_USAGE_ERROR_FROM(where, expression, text) \
    check_usage_error(text, where, [&] { static_cast<void>(expression); })
