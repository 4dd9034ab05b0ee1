// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

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
