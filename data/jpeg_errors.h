#pragma once
// SPDX-License-Identifier: MIT
//
// libjpeg-turbo reports fatal errors through a function that must not return, and C code lies in between, so the way back is a
// longjmp: nothing with a destructor may come to life after its setjmp.

#include <csetjmp>
#include <cstdio>

#include <jerror.h>
#include <jpeglib.h>

#ifndef LIBJPEG_TURBO_VERSION
#error "abtrain needs libjpeg-turbo; the jpeglib.h that was found belongs to a different libjpeg"
#endif

namespace ab {

/// The state that the library calls back with; its first member is the library's own struct.
struct JpegErrors {
  jpeg_error_mgr base;
  std::jmp_buf way_back;
  char message[JMSG_LENGTH_MAX];

  /// For a codec to hold; a file's damage is an error, where the library would warn and fill in grey.
  jpeg_error_mgr* begin();
};

}  // namespace ab
