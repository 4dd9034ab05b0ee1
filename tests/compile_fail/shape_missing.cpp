// SPDX-License-Identifier: Apache-2.0
// expected-error: Shapes: a parameter with a dynamic extent has no shape; give shape<P>(...) for it
#include "model.hpp"

struct Wide : sk::Param<"wide", float, sk::dynamic> {};
struct Deep : sk::Param<"deep", float, sk::dynamic> {};

#ifdef REJECT
const sk::Shapes<sk::Params<Wide, Deep>> shapes{sk::shape<Wide>(8)};
#else
const sk::Shapes<sk::Params<Wide, Deep>> shapes{sk::shape<Wide>(8), sk::shape<Deep>(8)};
#endif
