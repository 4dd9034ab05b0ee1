// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace program {

/// The caller's input cannot be used; the text names what was given and what was expected. Exit code 2.
class InputError : public std::invalid_argument {
  public:
    using std::invalid_argument::invalid_argument;
};

/// "--flag 'given': expected ..."
inline InputError bad_flag(const std::string& flag, const std::string& given, const std::string& expected) {
    return InputError(flag + " '" + given + "': expected " + expected);
}

}  // namespace program
